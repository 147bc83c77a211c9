"""A clone is not replaced while work is stored in it.

Theory. A repair copies the refs of tasks out of a damaged clone and then puts a new clone in its place. A commit stored
in the old one after its ref was read would be lost. So each writer holds a shared lock on the directory of the clone
until its ref is moved, and a repair an exclusive one from the first ref that it reads until the rename. A lock belongs
to a directory, not to its name: who got one looks whether the directory still has the name, else it takes the lock of
the new clone.

Order of the locks: task, repository, clone (this one), objects (`git.maintenance`), refs. A repair waits for writers
while it holds the repository's lock, so a writer must not ask for that one.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError

CloneId = tuple[int, int]
"""Device and inode of the directory of a clone: another clone that is put in its place has others."""

WAIT_S = 600.0
_POLL_S = 0.05
_BETWEEN_RENAMES_S = 0.5
"""How long a clone may be missing while another one is put in its place."""


@contextmanager
def hold_clone(path: Path, expected: CloneId | None = None) -> Iterator[None]:
    """While work is stored in the clone at `path`, or a ref of it is moved. Waits for a repair that copies its refs.

    `expected`: the clone that the caller has read. Without a clone there is no lock: git says that there is none.
    Raises: `conflict` after `WAIT_S`, or if there is another clone now, which may lack objects that the caller saw.
    """
    fd = _lock(path, fcntl.LOCK_SH, "it is repaired")
    try:
        if fd is not None and expected is not None and _identify(fd) != expected:
            raise _replaced_error(path)
        yield
    finally:
        if fd is not None:
            os.close(fd)


@contextmanager
def hold_for_replacement(path: Path) -> Iterator[None]:
    """While the refs of the clone at `path` are copied and another clone is put in its place. The caller holds the
    lock of the repository. Raises: `conflict` if work is being stored in it for `WAIT_S`.
    """
    fd = _lock(path, fcntl.LOCK_EX, "work is stored in it") if path.is_dir() else None
    try:
        yield
    finally:
        if fd is not None:
            os.close(fd)


def _lock(path: Path, kind: int, why_busy: str) -> int | None:
    """An open directory with the lock, that has this name; None if there is none."""
    began = time.monotonic()
    while True:
        waited = time.monotonic() - began
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            if waited >= _BETWEEN_RENAMES_S:
                return None
        else:
            if _try_lock(fd, path, kind):
                return fd
            os.close(fd)
        if waited >= WAIT_S:
            raise _busy_error(path, why_busy)
        time.sleep(_POLL_S)


def _try_lock(fd: int, path: Path, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), path.stat())
    except OSError:
        return False


def _identify(fd: int) -> CloneId:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _busy_error(path: Path, why: str) -> SandboxError:
    return SandboxError(
        ErrorCode.CONFLICT,
        f"The cache clone {path.name} is in use",
        details=f"{why}; waited {WAIT_S:.0f} s",
        hint="No data was stored. Try again later.",
    )


def _replaced_error(path: Path) -> SandboxError:
    return SandboxError(
        ErrorCode.CONFLICT,
        f"The cache clone {path.name} was repaired while this operation ran",
        details="a new clone is in its place, with the commits and snapshots of all tasks",
        hint="No data was stored. Repeat the operation.",
    )
