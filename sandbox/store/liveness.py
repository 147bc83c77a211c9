"""Which controllers are alive in a home: this separates leftovers of a killed controller from work of a live one.

Each controller holds the lock of its own file, `presence/<pid>-<nonce>`, from its first operation until it ends. What
it creates and will delete again - clean rooms, one-shot containers - has the nonce in its name: the owner is alive
while that file is locked. The pid is only for people: another process may get it later.
"""

from __future__ import annotations

import os
import secrets
import weakref
from contextlib import suppress
from pathlib import Path

from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern
from sandbox.store.lockfile import create_locked, is_abandoned, remove_abandoned

NONCE_HEX = 12
_FILE = lazy_pattern(rf"^\d+-([0-9a-f]{{{NONCE_HEX}}})\Z")
_OWNED = lazy_pattern(rf"-([0-9a-f]{{{NONCE_HEX}}})[0-9a-f]{{{32 - NONCE_HEX}}}(\.layers)?\Z")
_USED_ENGINE = b"engine\n"
_FAILED = b"left\n"


class LiveController:
    """This controller, alive. `nonce`: part of the names of its temporary resources. `has_reconciled`: whether it has
    already removed the leftovers of dead controllers. It ends at the latest when this object is collected.
    """

    def __init__(self, folder: Path) -> None:
        """Raises: OSError when the home cannot be written."""
        folder.mkdir(mode=0o700, exist_ok=True)
        self.has_reconciled = False
        self.nonce = secrets.token_hex(NONCE_HEX // 2)
        self._path = folder / f"{os.getpid()}-{self.nonce}"
        self._fd, beside = create_locked(self._path)
        beside.rename(self._path)
        self._end = weakref.finalize(self, _end_normally, self._path, self._fd, os.getpid())
        self._end.atexit = False  # an operation of a daemon thread may be cut by the exit: it leaves something

    def new_id(self) -> str:
        """A unique id of 32 hex digits that contains our nonce; `owner_of` finds it."""
        return self.nonce + secrets.token_hex((32 - NONCE_HEX) // 2)

    def note_engine(self) -> None:
        """Note that containers may be left if we are killed. If the disk is full, only `gc` will find them."""
        with suppress(OSError):
            os.pwrite(self._fd, _USED_ENGINE, 0)

    def end(self) -> None:
        """End normally: no leftovers. A second call does nothing."""
        self._end()


def _end_normally(path: Path, fd: int, pid: int) -> None:
    """In a forked child the file is that of its parent, which still works."""
    try:
        if os.getpid() == pid:
            path.unlink(missing_ok=True)
    finally:
        os.close(fd)


@dataclass(frozen=True)
class DeadController:
    """A controller that was killed."""

    path: Path
    nonce: str

    @property
    def used_engine(self) -> bool:
        """Whether it may have left containers."""
        return self._note() == _USED_ENGINE

    @property
    def is_marked_failed(self) -> bool:
        """Whether removing its leftovers was tried and failed."""
        return self._note() == _FAILED

    def mark_failed(self) -> None:
        """Removing its leftovers failed. Only `gc` tries again: else each command would wait for a hanging engine."""
        with suppress(OSError):
            self.path.write_bytes(_FAILED)

    def remove(self) -> bool:
        """Delete its file: its leftovers are removed. Returns whether the file still existed."""
        return remove_abandoned(self.path)

    def _note(self) -> bytes:
        try:
            return self.path.read_bytes()
        except OSError:
            return b""


def owner_of(name: str) -> str | None:
    """Nonce of the controller that created a room, report folder or container of this name; None for other names."""
    found = _OWNED.search(name)
    return found[1] if found else None


def list_dead_controllers(folder: Path) -> list[DeadController]:
    """The controllers that were killed."""
    return [DeadController(path, nonce) for path, nonce in _list_controllers(folder) if is_abandoned(path)]


def list_live_nonces(folder: Path) -> frozenset[str]:
    """Nonces of the live controllers. List the names to check before this call: else a controller that starts in
    between would seem dead.
    """
    return frozenset(nonce for path, nonce in _list_controllers(folder) if not is_abandoned(path))


def _list_controllers(folder: Path) -> list[tuple[Path, str]]:
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    found = ((path, _FILE.match(path.name)) for path in paths)
    return [(path, match[1]) for path, match in found if match]
