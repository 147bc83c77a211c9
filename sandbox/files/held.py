"""Files that guests hold without a name: opened, then unlinked. They fill a disk and no walk meets them (THREATS L04).

A guest's processes are known by what they see: their root has, where the worktree is mounted, this worktree. A file
that is in flight between two sockets is held by nobody whom we could ask.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from sandbox.files.usage import DiskUse, taken_by

_UID = re.compile(rb"^Uid:\t(\d+)\t", re.MULTILINE)
_MOST_FILES = 20_000  # of one process; one that maps more is looked at in part


def held_open(
    worktree: Path, mounted_at: PurePosixPath, devices: frozenset[int], proc: Path = Path("/proc")
) -> DiskUse:
    """What unlinked files take that processes with this worktree at `mounted_at` have open or mapped.

    Only files on `devices`: what lies in a tmpfs is memory. What we may not look at counts as nothing.
    """
    held: dict[tuple[int, int], DiskUse] = {}
    with suppress(OSError):
        worktree_info = worktree.stat()
        for process in _guests(proc, worktree_info, mounted_at):
            for info in _files_of(process):
                if stat.S_ISREG(info.st_mode) and not info.st_nlink and info.st_dev in devices:
                    held[info.st_dev, info.st_ino] = taken_by(info)
    return sum(held.values(), DiskUse())


def _guests(proc: Path, worktree: os.stat_result, mounted_at: PurePosixPath) -> Iterator[Path]:
    """Their uid is asked for first: nothing is looked up in the roots of strangers. The owner of the directory in proc
    would not do: a process that is not dumpable has root's.
    """
    for process in proc.iterdir():
        if process.name.isdecimal():
            with suppress(OSError):  # it has ended
                uid = _UID.search((process / "status").read_bytes())
                if uid is not None and int(uid[1]) == worktree.st_uid and _sees(process, worktree, mounted_at):
                    yield process


def _sees(process: Path, worktree: os.stat_result, mounted_at: PurePosixPath) -> bool:
    there = os.lstat(process / "root" / mounted_at.relative_to("/"))
    return (there.st_dev, there.st_ino) == (worktree.st_dev, worktree.st_ino)


def _files_of(process: Path) -> Iterator[os.stat_result]:
    """Open ones, and mapped ones: a mapping keeps a file after its descriptor was closed."""
    for kind in ("fd", "map_files"):
        with suppress(OSError), os.scandir(process / kind) as names:
            for _, entry in zip(range(_MOST_FILES), names, strict=False):
                with suppress(OSError):
                    yield entry.stat()
