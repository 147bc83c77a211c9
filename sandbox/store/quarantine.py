"""Notes on containers in quarantine, one file each, shared by all controllers of a home (docs/adr/0024)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.store.home import read_json, write_json

_SUFFIX = ".json"


@dataclass(frozen=True)
class QuarantineNotes:
    """`folder` is created with the first note: most homes never have one."""

    folder: Path

    def add(self, name: str, container_id: str, reason: str) -> None:
        """Note a container. Raises: OSError if the home cannot be written."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        since = datetime.now(UTC).isoformat()
        write_json(self._note(name), {"name": name, "id": container_id, "reason": reason, "since": since})

    def names(self) -> Mapping[str, str]:
        """Ids by name. A note that cannot be read still reserves its name: the name of its file contains it."""
        if not self.folder.is_dir():
            return {}
        return {path.stem: _id(path) for path in sorted(self.folder.glob(f"[!.]*{_SUFFIX}"))}

    def remove(self, name: str) -> None:
        """Delete the note: the container no longer exists, and its name is free."""
        self._note(name).unlink(missing_ok=True)

    def _note(self, name: str) -> Path:
        return self.folder / f"{Path(name).name}{_SUFFIX}"


def _id(path: Path) -> str:
    try:
        return str((read_json(path) or {}).get("id", ""))
    except SandboxError:
        return ""
