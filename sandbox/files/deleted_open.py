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
from itertools import islice
from pathlib import Path, PurePosixPath

from sandbox.files.disk_usage import DiskUse, taken_by

_UID = re.compile(rb"^Uid:\t(\d+)\t", re.MULTILINE)
_MOST = 50_000  # looked at in all: a guest that maps more, to make us look for ever, can hide one behind them


def held_open(
    worktree: Path, mounted_at: PurePosixPath, devices: frozenset[int], proc: Path = Path("/proc")
) -> Iterator[DiskUse]:
    """What unlinked files take that processes with this worktree at `mounted_at` have open or mapped: something or
    nothing for each file that is looked at.

    Only files on `devices`: what lies in a tmpfs is memory. What we may not look at counts as nothing.
    """
    known: set[tuple[int, int]] = set()
    for info in islice(_files_of_guests(worktree, mounted_at, proc), _MOST):
        key = info.st_dev, info.st_ino
        if stat.S_ISREG(info.st_mode) and not info.st_nlink and info.st_dev in devices and key not in known:
            known.add(key)
            yield taken_by(info)
        else:
            yield DiskUse()


def _files_of_guests(worktree: Path, mounted_at: PurePosixPath, proc: Path) -> Iterator[os.stat_result]:
    with suppress(OSError):  # it has been taken away
        for process in _guests(proc, worktree.stat(), mounted_at):
            yield from _files_of(process)


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
            for entry in names:
                with suppress(OSError):
                    yield entry.stat()
