"""Remove what a failed fetch leaves in the object store: unfinished packs, as large as the remote made them."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from sandbox.errors import ErrorCode, SandboxError

_UNFINISHED = "tmp_*"
_MIN_AGE_S = 60.0

FETCH_LIMIT = "fetch_limit"
"""The `reason` of the error for a pack that reached the limit of a fetch."""


@contextmanager
def remove_unfinished_packs(git_dir: Path, limit_bytes: int) -> Iterator[None]:
    """Remove old unfinished packs of a killed controller, and if the block fails, those that appeared during it.

    Only packs that no process has open are removed: an import of another task may be writing its own pack. The minimum
    age keeps a pack that its writer has just closed and will rename. Raises: `quota_exceeded` instead of git's error if
    a pack has grown to the limit (git does not know why its child died).
    """
    packs = git_dir / "objects" / "pack"
    before = set(packs.glob(_UNFINISHED))
    _remove_unused(path for path in before if time.time() - _stat_pack(path).mtime_s > _MIN_AGE_S)
    try:
        yield
    except BaseException as error:
        largest = _remove_unused(set(packs.glob(_UNFINISHED)) - before)
        if isinstance(error, SandboxError) and largest >= limit_bytes:
            raise _too_large_error(limit_bytes, error) from error
        raise


def _too_large_error(limit_bytes: int, error: SandboxError) -> SandboxError:
    return SandboxError(
        ErrorCode.QUOTA_EXCEEDED,
        f"The remote sent more than {limit_bytes} bytes, the limit of one fetch",
        details=error.details,
        hint="The received data was deleted. The limit is `remotes.max_fetch_bytes` in config.toml.",
        reason=FETCH_LIMIT,
    )


def _remove_unused(paths: Iterable[Path]) -> int:
    """Returns the size of the largest pack that was removed."""
    largest = 0
    for path in paths:
        if is_not_open(path):
            largest = max(largest, _stat_pack(path).size)
            path.unlink(missing_ok=True)
    return largest


class _PackState(NamedTuple):
    size: int
    mtime_s: float


def _stat_pack(path: Path) -> _PackState:
    try:
        found = path.stat()
    except FileNotFoundError:
        return _PackState(0, time.time())
    return _PackState(found.st_size, found.st_mtime)


def is_not_open(path: Path) -> bool:
    """Whether no process has this file open: only then the kernel leases it for writing (fcntl(2), F_SETLEASE)."""
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            return True
        finally:
            os.close(fd)
    return False
