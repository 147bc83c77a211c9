"""Which program may be our git: one that nobody but root and ourselves can replace or change."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError


def trusted_program(path: Path) -> str:
    """The path as it is, when it is safe to run with all we may do.

    Raises: `invalid_input` unless it is absolute, free of links, executable, and it and every directory above it
    belong to root or to us and are closed to other writers. (A link could be safe; where it points to may change.)
    """
    try:
        reason = _objection(path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
    if reason:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "The configured git is not safe to run" if path.is_absolute() else "The configured git is no absolute path",
            details=f"{path}: {reason}",
            hint="git.executable is the real, absolute path of a program that only root or you can replace.",
        )
    return str(path)


def _objection(path: Path) -> str:
    if not path.is_absolute():
        return "not absolute"
    if path.resolve(strict=True) != path:
        return f"leads through a link; its real path is {path.resolve()}"
    if not path.is_file() or not os.access(path, os.X_OK):
        return "not an executable file"
    return next((f"{p} {objection}" for p in (path, *path.parents) if (objection := _open_to_others(p))), "")


def _open_to_others(path: Path) -> str:
    info = path.lstat()
    if info.st_uid not in {0, os.geteuid()}:
        return f"belongs to uid {info.st_uid}"
    shared_folder = stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX  # /tmp: nobody moves what is ours there
    if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not shared_folder:
        return "can be written by others"
    return ""
