"""Sync of files and directories, for what a command says is done."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)


def make_durable(root: Path) -> None:
    """Sync all files below `root` to disk: one syncfs(2) of the file system is cheaper than a sync of each file.

    Raises: OSError if data could not be written.
    """
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _libc.syncfs(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
    finally:
        os.close(fd)


def sync_all(paths: Iterable[Path]) -> None:
    """Sync each of these files, and of a directory its names. Raises: OSError."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
