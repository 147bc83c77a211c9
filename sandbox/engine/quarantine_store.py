"""The protocol of the store that names given-up containers; the engine adapter does not know where it lies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Ward(Protocol):
    """Where given up containers are noted, for all controllers of a home. `held`: the id of each by name, '' for one
    that nobody knows.
    """

    def admit(self, name: str, container_id: str, reason: str) -> None: ...

    def held(self) -> Mapping[str, str]: ...

    def discharge(self, name: str) -> None: ...
