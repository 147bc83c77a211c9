"""The `.git` file of a worktree: we write it, it is constant, it points to a path that does not exist, and in every
guest a read-only copy is mounted over it.

If a guest could put a link at `.git`, the next copy would be mounted at the link's target (THREATS A07). So the file is
compared byte for byte before each container is created.
"""

from __future__ import annotations

import os
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError

MASK_NAME = ".git"


def write_mask(root: Path, mask: bytes) -> None:
    """Write the file into a worktree that no guest has seen. Raises: FileExistsError."""
    fd = os.open(root / MASK_NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o444)
    with os.fdopen(fd, "wb") as stream:
        os.fchmod(fd, 0o444)  # whatever the umask: a guest must be able to read it
        stream.write(mask)


def require_mask(root: Path, mask: bytes) -> None:
    """Raises: `unsafe_repository` unless `.git` is the regular file that we wrote, unchanged."""
    if _read_mask(root, len(mask) + 1) != mask:
        raise SandboxError(
            ErrorCode.UNSAFE_REPOSITORY,
            "The worktree's .git file is not the one the sandbox wrote",
            hint="It was changed from outside. Close this task and create a new one.",
        )


def _read_mask(root: Path, limit: int) -> bytes | None:
    try:
        fd = os.open(root / MASK_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, limit)
    except OSError:  # a directory
        return None
    finally:
        os.close(fd)
