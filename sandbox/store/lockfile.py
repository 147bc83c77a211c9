"""Files that say whether their maker lives: he holds a lock on them, and the kernel frees it when he dies.

Theory. flock(2) belongs to an open file, not to a process id that somebody else may get. A file is made and then
locked, and between the two it looks abandoned; so whoever takes an abandoned file away holds its lock while he unlinks
it, and whoever made one looks, once he has the lock, whether it still has its name. Neither needs to know the clock.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def make_claimed(path: Path, mode: int = 0o600) -> tuple[int, Path]:
    """A new file beside `path` that lives as long as we do: its descriptor and its name, `.NAME.<hex>.tmp`.

    The caller renames or unlinks it, then closes it. Raises: OSError.
    """
    while True:
        beside = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
        fd = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return fd, beside
        os.close(fd)  # swept away before we had the lock


@contextmanager
def taken(path: Path) -> Iterator[bool]:
    """Hold an existing file's lock if nobody else does; yields whether we do. Nobody's is one that is not there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        yield _lock(fd) and os.fstat(fd).st_nlink > 0
    finally:
        os.close(fd)


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def is_abandoned(path: Path) -> bool:
    """Whether the file is there and nobody holds it."""
    with taken(path) as ours:
        return ours


def remove_abandoned(path: Path) -> bool:
    """Unlink a file that nobody holds; whether it went."""
    with taken(path) as ours:
        if ours:
            path.unlink(missing_ok=True)
        return ours
