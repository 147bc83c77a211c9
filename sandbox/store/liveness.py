"""Which controllers work in a home, so that what a killed one left is told from what a living one makes.

Each holds the lock of a file of its own, `presence/<pid>-<nonce>`, from its first work until it ends. What it makes
and means to take away again - clean rooms, one-shot containers - has the nonce in its name: the owner is alive while
somebody holds that file. The pid is for people; another process may have it tomorrow.
"""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sandbox.store.lockfile import is_abandoned, make_claimed, remove_abandoned

NONCE_HEX = 12
_FILE = re.compile(rf"^\d+-([0-9a-f]{{{NONCE_HEX}}})$")
_OWNED = re.compile(rf"-([0-9a-f]{{{NONCE_HEX}}})[0-9a-f]{{{32 - NONCE_HEX}}}(\.layers)?$")
_USED_ENGINE = b"engine\n"
_LEFT = b"left\n"


class Presence:
    """One controller at work. `nonce`: part of the names of what it makes for itself. `has_looked`: for what those
    before it left.
    """

    def __init__(self, folder: Path) -> None:
        """Raises: OSError when the home cannot be written."""
        folder.mkdir(mode=0o700, exist_ok=True)
        self.has_looked = False
        self.nonce = secrets.token_hex(NONCE_HEX // 2)
        self._path = folder / f"{os.getpid()}-{self.nonce}"
        self._fd, beside = make_claimed(self._path)
        beside.rename(self._path)

    def new_id(self) -> str:
        """32 hex digits that nobody else has; `owner_of` finds us in them."""
        return self.nonce + secrets.token_hex((32 - NONCE_HEX) // 2)

    def note_engine(self) -> None:
        """If we are killed, containers may be left as well. On a full disk only `gc` will find them then."""
        with suppress(OSError):
            os.pwrite(self._fd, _USED_ENGINE, 0)

    def end(self) -> None:
        """We leave nothing behind."""
        self._path.unlink(missing_ok=True)
        os.close(self._fd)


@dataclass(frozen=True)
class Absent:
    """A controller that died without ending."""

    path: Path
    nonce: str

    @property
    def used_engine(self) -> bool:
        """Whether it may have left containers."""
        return self._note() == _USED_ENGINE

    @property
    def is_left(self) -> bool:
        """Whether somebody tried to take care of it, and could not."""
        return self._note() == _LEFT

    def leave(self) -> None:
        """It could not be taken care of. Only `gc` tries again, lest each command wait for an engine that hangs."""
        with suppress(OSError):
            self.path.write_bytes(_LEFT)

    def forget(self) -> bool:
        """All it left is taken care of; whether it was there still."""
        return remove_abandoned(self.path)

    def _note(self) -> bytes:
        try:
            return self.path.read_bytes()
        except OSError:
            return b""


def owner_of(name: str) -> str | None:
    """Nonce of the controller that made a room, report folder or container of this name, None for other names."""
    found = _OWNED.search(name)
    return found[1] if found else None


def absent(folder: Path) -> list[Absent]:
    """Controllers that were killed."""
    return [Absent(path, nonce) for path, nonce in _listed(folder) if is_abandoned(path)]


def alive(folder: Path) -> frozenset[str]:
    """Nonces of the controllers at work. Whoever judges names by it has listed them before: else one that began
    meanwhile would pass for dead.
    """
    return frozenset(nonce for path, nonce in _listed(folder) if not is_abandoned(path))


def _listed(folder: Path) -> list[tuple[Path, str]]:
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    found = ((path, _FILE.match(path.name)) for path in paths)
    return [(path, match[1]) for path, match in found if match]
