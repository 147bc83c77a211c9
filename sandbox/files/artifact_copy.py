"""Copy build output from one worktree to another, with its times: sharing blocks where the file system can.

Both worktrees may be a guest's work: names are opened below their root, links are not followed, no file is replaced.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.names import EntryKind, WalkEntry
from sandbox.files.tree import WorktreeFiles

_FICLONE = 0x40049409  # linux/fs.h: share the blocks of another file
_CHUNK = 4 * 1024**2
_CANNOT_SHARE = {errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.ETXTBSY}


def find_artifacts(files: WorktreeFiles, is_artifact: Callable[[bytes], bool]) -> list[WalkEntry]:
    """The regular files that a rule selects, by path. Raises: `quota_exceeded` past the limits of a walk."""
    return [entry for entry in files.walk(lambda _: False) if entry.kind is EntryKind.FILE and is_artifact(entry.path)]


def copy_artifacts(
    source: WorktreeFiles, target: WorktreeFiles, entries: Iterable[WalkEntry], owner: tuple[int, int] | None
) -> int:
    """Copy files that the target does not have, with modes and times; returns how many. What vanished, and what can no
    longer be opened safely, is left out. A file is copied whole or not at all.

    Raises: `quota_exceeded` if the disk is full; the files before this one are kept.
    """
    copied = 0
    for entry in entries:
        try:
            _copy_one(source, target, entry.path, owner)
        except SandboxError as error:
            if error.code is ErrorCode.QUOTA_EXCEEDED:
                raise
        else:
            copied += 1
    return copied


def _copy_one(source: WorktreeFiles, target: WorktreeFiles, path: bytes, owner: tuple[int, int] | None) -> None:
    """Raises: SandboxError, also for errors of the system. A partial copy is removed: a linker would take it."""
    parent, name = os.path.split(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with source.open_regular(path) as (read, info), target.open_directory(parent, owner) as folder:
        write = os.open(name, flags, 0o600, dir_fd=folder)
        try:
            _fill(read, write, info.st_size)
            if owner is not None:
                os.fchown(write, *owner)
            os.fchmod(write, 0o755 if info.st_mode & stat.S_IXUSR else 0o644)
            os.utime(write, ns=(info.st_mtime_ns, info.st_mtime_ns))
        except BaseException:
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)
            raise
        finally:
            os.close(write)


def _fill(read: int, write: int, size: int) -> None:
    """At most `size` bytes: a guest may make the file longer meanwhile."""
    try:
        fcntl.ioctl(write, _FICLONE, read)
    except OSError as error:
        if error.errno not in _CANNOT_SHARE:
            raise
    else:
        return
    while size > 0 and (chunk := os.read(read, min(size, _CHUNK))):
        size -= len(chunk)
        view = memoryview(chunk)
        while view:  # a disk that becomes full takes a part of the bytes; the next call raises
            view = view[os.write(write, view) :]
