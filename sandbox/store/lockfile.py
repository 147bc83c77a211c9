"""Lock files that show whether their owner is alive: the owner holds a lock, and the kernel frees it at its death.

Theory. A flock(2) lock belongs to an open file, not to a process id, which another process may get later. A file is
created and then locked, and in between it looks abandoned. So a process that removes an abandoned file holds the file's
lock while it unlinks it, and a process that creates a file checks, once it has the lock, that the file still has its
name. Neither depends on a clock.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.lazy_module import LazyModule

if TYPE_CHECKING:
    import secrets
else:  # loaded at first use: a listing does not write (docs/adr/0089)
    secrets = LazyModule("secrets")

_POLL_S = 0.01


def create_locked(path: Path, mode: int = 0o600) -> tuple[int, Path]:
    """Create a locked file beside `path`. Returns its descriptor and its path, `.NAME.<hex>.tmp`.

    The caller renames or unlinks it, then closes it. Raises: OSError.
    """
    while True:
        beside = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
        fd = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return fd, beside
        os.close(fd)  # removed before we had the lock


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Try to lock an existing file; yields whether we hold the lock. False for a missing file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        yield _try_flock(fd) and os.fstat(fd).st_nlink > 0
    finally:
        os.close(fd)


def lock_within(fd: int, wait_s: float) -> bool:
    """Lock an open file, and wait while another process or thread holds the lock. False after `wait_s`."""
    ends_at = time.monotonic() + wait_s
    while not _try_flock(fd):
        if time.monotonic() >= ends_at:
            return False
        time.sleep(_POLL_S)
    return True


def _try_flock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def is_abandoned(path: Path) -> bool:
    """Whether the file exists and is not locked."""
    with try_lock(path) as ours:
        return ours


def remove_abandoned(path: Path) -> bool:
    """Unlink a file that is not locked. Returns whether it was unlinked."""
    with try_lock(path) as ours:
        if ours:
            path.unlink(missing_ok=True)
        return ours
