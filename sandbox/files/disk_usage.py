"""What the files below a directory take on disk, counted while a guest writes there. Nothing is followed or opened but
directories, each by its name in the one above; so a link or a rename leads nowhere else.

Blocks count, not sizes: a sparse file costs nothing, one that fallocate(2) made costs all of it (THREATS L06).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

DEPTH = 128
"""Directories inside of each other; nothing of ours walks deeper (`files.tree.Limits`)."""

_BLOCK = 512  # st_blocks counts these on Linux, whatever the file system's own size is: stat(2)
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class DiskUse:
    """Bytes allocated, and names. A file with several names counts each of them, its bytes once."""

    bytes: int = 0
    files: int = 0

    def __add__(self, other: DiskUse) -> DiskUse:
        return DiskUse(self.bytes + other.bytes, self.files + other.files)


class TooDeepError(Exception):
    """Directories are nested deeper than anybody looks: what is in there cannot be told."""


@dataclass(frozen=True)
class Room:
    """What a file system has in use and left over. `free_files` None: it does not count them."""

    used_bytes: int
    used_files: int
    free_bytes: int
    free_files: int | None

    @classmethod
    def of(cls, folder: Path) -> Room:
        """Raises: OSError."""
        info = os.statvfs(folder)
        return cls(
            used_bytes=(info.f_blocks - info.f_bfree) * info.f_frsize,
            used_files=info.f_files - info.f_ffree,
            free_bytes=info.f_bavail * info.f_frsize,
            free_files=info.f_favail if info.f_files else None,
        )


def measure(root: Path, since_ns: int = 0) -> Generator[DiskUse]:
    """What each name below `root` takes, one after the other; close the iterator when not used to its end.

    Only what was changed at `since_ns` or later: the kernel's change time, which no guest can set. What cannot be
    looked at counts as nothing. Raises: `TooDeepError`.
    """
    for info in _names(root):
        yield taken_by(info) if info.st_ctime_ns >= since_ns else DiskUse()


def taken_by(info: os.stat_result) -> DiskUse:
    """What one name of a file takes: its share of the blocks. Pure."""
    names = 1 if stat.S_ISDIR(info.st_mode) else max(info.st_nlink, 1)
    return DiskUse(info.st_blocks * _BLOCK // names, 1)


def _names(root: Path) -> Iterator[os.stat_result]:
    """The stat of every name, depth first, through handles of the directories above; of a directory that is moved
    while we walk, and so met twice, once.
    """
    entered: set[tuple[int, int]] = set()
    with _Levels() as levels:
        levels.enter(root)
        while levels.open:
            entry = levels.next_entry()
            if entry is None:
                levels.leave()
                continue
            with suppress(OSError):  # gone again, or not ours to read
                info = entry.stat(follow_symlinks=False)
                if not stat.S_ISDIR(info.st_mode):
                    yield info
                elif (info.st_dev, info.st_ino) not in entered:
                    entered.add((info.st_dev, info.st_ino))
                    yield info
                    levels.enter(entry.name)


class _Levels:
    """The directories from the root to where a walk is, with handles."""

    def __init__(self) -> None:
        self.open: list[tuple[int, Iterator[os.DirEntry[str]], ExitStack]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self.open:
            self.leave()

    def enter(self, name: Path | str) -> None:
        """One down. Raises: `TooDeepError`, OSError."""
        if len(self.open) >= DEPTH:
            raise TooDeepError
        with ExitStack() as opening:
            fd = os.open(name, _FLAGS, dir_fd=self.open[-1][0] if self.open else None)
            opening.callback(os.close, fd)
            names = opening.enter_context(os.scandir(fd))
            self.open.append((fd, names, opening.pop_all()))

    def leave(self) -> None:
        """One up."""
        self.open.pop()[2].close()

    def next_entry(self) -> os.DirEntry[str] | None:
        """The next name of the lowest directory; None when there are no more."""
        try:
            return next(self.open[-1][1], None)
        except OSError:
            return None
