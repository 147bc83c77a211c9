"""A clone is not replaced while work is stored in it.

Theory. A repair copies the refs of tasks out of a damaged clone and then puts a new clone in its place. A commit stored
in the old one after its ref was read would be lost. So each writer holds a shared lock on the directory of the clone
until its ref is moved, and a repair an exclusive one from the first ref that it reads until the rename. A lock belongs
to a directory, not to its name: who got one looks whether the directory still has the name, else it takes the lock of
the new clone.

Writers come and go, so a repair that only looked for a moment without one would starve. It says that it waits: it
holds a lock on a file in the clone, the gate, until it has the clone. A writer that comes then lets it go first. The
gate is a courtesy: what excludes is the lock on the directory alone.

Order of the locks: task, repository, gate, clone (this one), objects (`git.maintenance`), refs. Beside them, in the
order of use: the admission to the disk does not wait; the lock of Git LFS's files is taken without a clone's; memory
(`TRANSFER_BUDGET`) after the clone's lock. While a repair waits for writers, it holds the repository's lock and the
gate:

- a writer must not ask for the repository's lock;
- a writer holds no gate: it looks at it, and lets go at once;
- a thread that holds the clone's lock gets it again, as each move of a ref does, without a look at the gate;
- another thread that works for a writer, or one that holds what a writer needs, waits at the gate no longer than
  `YIELD_S`. So a mistake in this order costs a minute, and one writer of many minutes stops the others no longer.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError

CloneId = tuple[int, int]
"""Device and inode of the directory of a clone: another clone that is put in its place has others."""

WAIT_S = 600.0
YIELD_S = 60.0
"""How long a writer lets a repair go first that waits for other writers."""

_GATE = "sandbox-repair-waits"
_POLL_S = 0.05
_BETWEEN_RENAMES_S = 0.5
"""How long a clone may be missing while another one is put in its place."""


class _HeldByThread(threading.local):
    def __init__(self) -> None:
        self.clones: list[CloneId] = []


_held = _HeldByThread()


@contextmanager
def hold_clone(path: Path, expected: CloneId | None = None) -> Iterator[None]:
    """While work is stored in the clone at `path`, or a ref of it is moved. Waits for a repair that copies its refs.

    `expected`: the clone that the caller has read. Without it, and without a clone, there is no lock: git says that
    there is none. Raises: `conflict` after `WAIT_S`, or if there is another clone now, which may lack objects that the
    caller saw; `not_found` if the expected one is gone.
    """
    fd = _lock(path, fcntl.LOCK_SH, "it is repaired")
    if fd is None:
        if expected is not None:
            raise _missing_error(path)
        yield
        return
    held, found = _held.clones, _identify(fd)
    held.append(found)
    try:
        if expected is not None and found != expected:
            raise _replaced_error(path)
        yield
    finally:
        held.remove(found)
        os.close(fd)


@contextmanager
def hold_for_replacement(path: Path) -> Iterator[None]:
    """While the refs of the clone at `path` are copied and another clone is put in its place. The caller holds the
    lock of the repository. Raises: `conflict` if work is being stored in it for `WAIT_S`.
    """
    fd = None
    if path.is_dir():
        with _gate(path):
            fd = _lock(path, fcntl.LOCK_EX, "work is stored in it")
    try:
        yield
    finally:
        if fd is not None:
            os.close(fd)


@contextmanager
def _gate(path: Path) -> Iterator[None]:
    """Say that a repair waits. Where that cannot be said, as on a full disk, it waits as before."""
    fd = None
    try:
        with suppress(OSError):
            fd = os.open(path / _GATE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)  # of others there are only looks, and no other repair: see the caller
        yield
    finally:
        if fd is not None:
            os.close(fd)


def _is_repair_waiting(clone: int) -> bool:
    """`clone`: its open directory."""
    try:
        fd = os.open(_GATE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=clone)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


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
            if not _yields(fd, kind, waited) and _try_lock(fd, path, kind):
                return fd
            os.close(fd)
        if waited >= WAIT_S:
            raise _busy_error(path, why_busy)
        time.sleep(_POLL_S)


def _yields(fd: int, kind: int, waited: float) -> bool:
    """Whether who wants the lock lets a repair go first. One that this thread holds already stops the repair anyway."""
    is_new_writer = kind == fcntl.LOCK_SH and _identify(fd) not in _held.clones
    return is_new_writer and waited < YIELD_S and _is_repair_waiting(fd)


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


def _missing_error(path: Path) -> SandboxError:
    return SandboxError(
        ErrorCode.NOT_FOUND,
        f"The cache clone {path.name} is missing",
        details="it was there when this operation began",
        hint="No data was stored. Clone the repository again, then repeat the operation.",
    )


def _replaced_error(path: Path) -> SandboxError:
    return SandboxError(
        ErrorCode.CONFLICT,
        f"The cache clone {path.name} was repaired while this operation ran",
        details="a new clone is in its place, with the commits and snapshots of all tasks",
        hint="No data was stored. Repeat the operation.",
    )
