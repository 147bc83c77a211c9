"""What an attack may use of the host that it runs on. The only implementation is `site.AttackRun`."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from sandbox.engine.protocol import EngineInformation
from sandbox.engine.unhardened import UnhardenedContainers


class AttackHost(Protocol):
    """`images`: tags of hostile images, removed at the end. `guests`: see `guests.guests_of`."""

    root: Path
    instance: str
    images: list[str]

    @property
    def engine(self) -> EngineInformation: ...

    @property
    def soft_containers(self) -> UnhardenedContainers: ...

    @property
    def runtime(self) -> str: ...

    @property
    def git_version(self) -> tuple[int, ...]: ...

    @property
    def guests(self) -> object: ...

    def image(self, name: str) -> str: ...
