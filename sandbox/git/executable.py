"""Which program may be used as git: one that only root and our own user can replace or change."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError


def require_safe_program(path: Path) -> str:
    """Return the path unchanged if it is safe to run with the controller's rights.

    Raises: `invalid_input` unless the path is absolute, contains no link and is executable, and the program and every
    directory above it belong to root or to us and cannot be written by others. (A link's target may change later.)
    """
    try:
        reason = _find_objection(path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
    if reason:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "The configured git is not safe to run" if path.is_absolute() else "git.executable must be absolute",
            details=f"{path}: {reason}",
            hint="Set git.executable to the real, absolute path of a program that only root or you can replace.",
        )
    return str(path)


def _find_objection(path: Path) -> str:
    if not path.is_absolute():
        return "not absolute"
    if path.resolve(strict=True) != path:
        return f"contains a link; its real path is {path.resolve()}"
    if not path.is_file() or not os.access(path, os.X_OK):
        return "not an executable file"
    return next((f"{p} {objection}" for p in (path, *path.parents) if (objection := _find_foreign_access(p))), "")


def _find_foreign_access(path: Path) -> str:
    info = path.lstat()
    if info.st_uid not in {0, os.geteuid()}:
        return f"belongs to uid {info.st_uid}"
    shared_folder = stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX  # /tmp: others cannot rename our files
    if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not shared_folder:
        return "can be written by others"
    return ""
