"""What a failed fetch leaves in the object store: packs that nobody will finish, as large as the remote made them."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError

_UNFINISHED = "tmp_*"
_OLD_S = 60.0


@contextmanager
def sweep(git_dir: Path, limit_bytes: int) -> Iterator[None]:
    """Remove the unfinished packs that appeared during the block, if it fails, and first those of a killed controller.

    Only those that no process has open: an import of another task may be writing its own beside. The age leaves out one
    that its writer has just closed, to rename it. Raises: `quota_exceeded` instead of what git says (it cannot tell why
    its child died) when a pack has grown to the limit.
    """
    packs = git_dir / "objects" / "pack"
    before = set(packs.glob(_UNFINISHED))
    _remove(path for path in before if time.time() - _state(path)[1] > _OLD_S)
    try:
        yield
    except BaseException as error:
        largest = _remove(set(packs.glob(_UNFINISHED)) - before)
        if isinstance(error, SandboxError) and largest >= limit_bytes:
            raise _too_large(limit_bytes, error) from error
        raise


def _too_large(limit_bytes: int, error: SandboxError) -> SandboxError:
    return SandboxError(
        ErrorCode.QUOTA_EXCEEDED,
        f"The remote sent more than the {limit_bytes} bytes that one fetch may bring",
        details=error.details,
        hint="Nothing of it was kept. `remotes.max_fetch_bytes` in config.toml is the limit.",
    )


def _remove(paths: Iterable[Path]) -> int:
    """Returns the size of the largest that went."""
    largest = 0
    for path in paths:
        if abandoned(path):
            largest = max(largest, _state(path)[0])
            path.unlink(missing_ok=True)
    return largest


def _state(path: Path) -> tuple[int, float]:
    """Size and time of the last change."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, time.time()
    return found.st_size, found.st_mtime


def abandoned(path: Path) -> bool:
    """Whether no process has this file open: only then the kernel leases it for writing (fcntl(2), F_SETLEASE)."""
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            return True
        finally:
            os.close(fd)
    return False
