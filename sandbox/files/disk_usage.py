"""Disk use of the files below a directory, counted while a guest writes there. Only directories are opened, each by its
name in its parent, and no link is followed; so a link or a rename cannot lead outside.

Blocks count, not sizes: the holes of a sparse file are free, blocks of fallocate(2) count in full (THREATS L06). So do
extended attributes where they are in no block.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

from sandbox.files.attributes import AttributeCount
from sandbox.lazy_dataclass import dataclass

MAX_DEPTH = 128
"""Nested directories. No walk of ours goes deeper (`files.names.WalkLimits`)."""

_BLOCK = 512  # the unit of st_blocks on Linux, independent of the file system's block size: stat(2)
_FULL_BYTES, _FULL_FILES = 128 * 1024, 4
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class DiskUse:
    """Allocated bytes, and number of names. A file with several names counts each name, but its bytes once."""

    bytes: int = 0
    files: int = 0

    def __add__(self, other: DiskUse) -> DiskUse:
        return DiskUse(self.bytes + other.bytes, self.files + other.files)


class TooDeepError(Exception):
    """Directories are nested deeper than `MAX_DEPTH`: the contents below cannot be measured."""


@dataclass(frozen=True)
class FreeSpace:
    """Used and free space of a file system. `free_files`: None if the file system does not count files."""

    used_bytes: int
    used_files: int
    free_bytes: int
    free_files: int | None

    @classmethod
    def of(cls, folder: Path) -> FreeSpace:
        """Raises: OSError."""
        info = os.statvfs(folder)
        return cls(
            used_bytes=(info.f_blocks - info.f_bfree) * info.f_frsize,
            used_files=info.f_files - info.f_ffree,
            free_bytes=info.f_bavail * info.f_frsize,
            free_files=info.f_favail if info.f_files else None,
        )


def is_full(room: FreeSpace) -> bool:
    """Whether a file system takes hardly another file. Pure."""
    return room.free_bytes < _FULL_BYTES or (room.free_files is not None and room.free_files < _FULL_FILES)


def measure_disk_use(
    root: Path, since_ns: int = 0, *, one_device: bool = False, on_denied: Callable[[], object] = bool
) -> Generator[DiskUse]:
    """Disk use of each name below `root`, one by one; after a name its attributes, some at a time. Close the iterator
    if you do not read it to the end.

    Only files changed at `since_ns` or later count, by the kernel's change time, which no guest can set. Files that
    cannot be examined count as zero. `one_device`: what is mounted below `root` does not count. `on_denied`: is
    called for a name below `root`, or a directory that changed since, which we may not examine. Raises: `TooDeepError`,
    OSError for `root` itself.
    """
    attributes = AttributeCount(root)

    def note(error: OSError, info: os.stat_result | None) -> None:
        if isinstance(error, PermissionError) and (info is None or info.st_ctime_ns >= since_ns):
            on_denied()

    for folder, name, info in _walk_names(root, root.lstat().st_dev if one_device else None, note):
        if info.st_ctime_ns < since_ns:
            yield DiskUse()
            continue
        yield disk_use_of(info)
        for more in attributes.measure(folder, name, info):
            yield DiskUse(more)


def disk_use_of(info: os.stat_result) -> DiskUse:
    """Disk use of one name of a file: its share of the blocks. Pure."""
    names = 1 if stat.S_ISDIR(info.st_mode) else max(info.st_nlink, 1)
    return DiskUse(info.st_blocks * _BLOCK // names, 1)


def _walk_names(
    root: Path, device: int | None, on_error: Callable[[OSError, os.stat_result | None], None]
) -> Iterator[tuple[int, str, os.stat_result]]:
    """Every name with its open parent directory and its stat, depth first. A directory that is moved during the walk,
    and so found twice, is walked once. `device`: names on others are left out.
    """
    entered: set[tuple[int, int]] = set()
    with _OpenDirectories() as levels:
        levels.enter(root)
        while levels.open:
            entry = levels.next_entry()
            if entry is None:
                levels.leave()
                continue
            info = None
            try:
                info = entry.stat(follow_symlinks=False)
                if device is not None and info.st_dev != device:
                    continue
                if not stat.S_ISDIR(info.st_mode):
                    yield levels.open[-1].fd, entry.name, info
                elif (info.st_dev, info.st_ino) not in entered:
                    entered.add((info.st_dev, info.st_ino))
                    yield levels.open[-1].fd, entry.name, info
                    levels.enter(entry.name)
            except OSError as error:  # removed meanwhile, or not readable for us
                on_error(error, info)


class _OpenDirectory(NamedTuple):
    """`names`: the entries that were not read yet. `handles` closes both."""

    fd: int
    names: Iterator[os.DirEntry[str]]
    handles: ExitStack


class _OpenDirectories:
    """Open handles of the directories from the root to the current directory of a walk."""

    def __init__(self) -> None:
        self.open: list[_OpenDirectory] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self.open:
            self.leave()

    def enter(self, name: Path | str) -> None:
        """Go down into `name`. Raises: `TooDeepError`, OSError."""
        if len(self.open) >= MAX_DEPTH:
            raise TooDeepError
        with ExitStack() as opening:
            fd = os.open(name, _FLAGS, dir_fd=self.open[-1].fd if self.open else None)
            opening.callback(os.close, fd)
            names = opening.enter_context(os.scandir(fd))
            self.open.append(_OpenDirectory(fd, names, opening.pop_all()))

    def leave(self) -> None:
        """Go up to the parent."""
        self.open.pop().handles.close()

    def next_entry(self) -> os.DirEntry[str] | None:
        """The next entry of the current directory; None at the end."""
        try:
            return next(self.open[-1].names, None)
        except OSError:
            return None
