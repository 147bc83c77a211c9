"""Notes on containers that were given up, one file each, for every controller of a home (docs/adr/0024)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.store.home import read_json, write_json

_SUFFIX = ".json"


@dataclass(frozen=True)
class Quarantine:
    """`folder` is made with the first note: nearly no home ever has one."""

    folder: Path

    def admit(self, name: str, container_id: str, reason: str) -> None:
        """Note a container. Raises: OSError when the home cannot be written."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        since = datetime.now(UTC).isoformat()
        write_json(self._note(name), {"name": name, "id": container_id, "reason": reason, "since": since})

    def held(self) -> Mapping[str, str]:
        """Ids by name. A note that cannot be read still holds its name: that is in the name of its file."""
        if not self.folder.is_dir():
            return {}
        return {path.stem: _id(path) for path in sorted(self.folder.glob(f"[!.]*{_SUFFIX}"))}

    def discharge(self, name: str) -> None:
        """The container is gone, and its name free again."""
        self._note(name).unlink(missing_ok=True)

    def _note(self, name: str) -> Path:
        return self.folder / f"{Path(name).name}{_SUFFIX}"


def _id(path: Path) -> str:
    try:
        return str((read_json(path) or {}).get("id", ""))
    except SandboxError:
        return ""
