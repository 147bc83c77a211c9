"""The protocol of the store of quarantined containers; the engine adapter does not know where it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class QuarantineStore(Protocol):
    """Quarantined containers, shared by all controllers of a home. `names`: the id of each by name, '' if unknown."""

    def add(self, name: str, container_id: str, reason: str) -> None: ...

    def names(self) -> Mapping[str, str]: ...

    def remove(self, name: str) -> None: ...
