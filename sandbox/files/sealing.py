"""Seal a tree that a guest wrote: it becomes ours, read-only, and holds plain files, directories and links only."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from pathlib import Path
from typing import NamedTuple

from sandbox.errors import ErrorCode, SandboxError

MAX_FILES, MAX_DEPTH = 500_000, 200
"""Of a tree, without its top: its entries, and how many directories are within each other."""
_TOO_DEEP = "directories that are nested too deeply"
_COPY = ("/bin/cp", "-R", "-P", "--sparse=auto", "--preserve=mode,timestamps", "--")
_COPY_TIMEOUT_S = 1800.0


class TreeSize(NamedTuple):
    """Of all files of a tree: their bytes and their number."""

    bytes: int
    files: int


def seal_tree(root: Path, owner: tuple[int, int]) -> TreeSize:
    """Give all entries to `owner` and take the right to write from all others. No guest may have the tree mounted.

    Set-id bits are removed. Links are not followed. Raises: `policy_violation` for a device, a socket, a pipe, a file
    with a second name (which could be outside), and too many or too deeply nested files.
    """
    total = count = 0
    start = len(str(root))
    if not _is_directory(root):
        raise _refusal("no directory at its top")
    try:
        for path, folders, names, folder in os.fwalk(root, follow_symlinks=False):
            os.fchown(folder, *owner)
            os.fchmod(folder, 0o755)
            for name in (*folders, *names):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                count += 1
                total += _seal_entry(name, folder, found, owner)
            if count > MAX_FILES:
                raise _refusal(f"more than {MAX_FILES} files")
            if path[start:].count("/") > MAX_DEPTH:
                raise _refusal(_TOO_DEEP)
    except RecursionError as error:
        raise _refusal(_TOO_DEEP) from error
    return TreeSize(total, count)


def _is_directory(root: Path) -> bool:
    """A link is none: it would be mounted as what it leads to. The guest may have deleted the directory."""
    try:
        return stat.S_ISDIR(root.lstat().st_mode)
    except FileNotFoundError:
        return False


def copy_sealed_tree(root: Path, target: Path) -> Path:
    """Copy a sealed tree to another file system, with its modes, times and holes. Returns `target`, which is new.

    Raises: OSError, ENOSPC if there was no space for it.
    """
    done = subprocess.run(  # noqa: S603 - our own paths
        (*_COPY, str(root), str(target)),
        env={"LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_COPY_TIMEOUT_S,
    )
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace")[-500:]
        raise OSError(errno.ENOSPC if os.strerror(errno.ENOSPC) in said else errno.EIO, f"cp failed: {said!a}")
    return target


def _seal_entry(name: str, folder: int, found: os.stat_result, owner: tuple[int, int]) -> int:
    """Returns its bytes."""
    if stat.S_ISDIR(found.st_mode):
        return 0  # when the walk is in it
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISLNK(found.st_mode):
        raise _refusal(f"an entry that is no file, directory or link: {ascii(name)[:200]}")
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        raise _refusal(f"a file with a second name: {ascii(name)[:200]}")
    os.chown(name, *owner, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISREG(found.st_mode):
        os.chmod(name, 0o555 if found.st_mode & 0o111 else 0o444, dir_fd=folder)
    return found.st_size


def _refusal(what: str) -> SandboxError:
    return SandboxError(
        ErrorCode.POLICY_VIOLATION, f"The tree holds {what}", hint="A package of it is not what it claims to be."
    )
