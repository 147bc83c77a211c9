"""Deleted files that guests still have open. They fill a disk, and a walk does not find them (THREATS L04).

A process is a guest's if its root has this worktree at the mount point. Threads are asked, not processes: a process has
no files any more when its first thread has ended, and clone(2) can give a thread a table of files of its own. A file
descriptor in flight between two sockets belongs to no process, so such a file is not found. But the kernel says of the
socket that will receive it how many there are (`scm_fds` in proc_pid_fdinfo(5), Linux 5.5); of a socket that is itself
in flight, the one that will receive that says so. A file that only a system call holds is not found: one thread waits
in poll(2), and another closes what it waits for.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath

from sandbox.files.disk_usage import DiskUse, disk_use_of
from sandbox.lazy_pattern import lazy_pattern

_UID = lazy_pattern(rb"^Uid:\t(\d+)\t", re.MULTILINE)
_SYS_KCMP, _KCMP_FILES = {"x86_64": 312, "aarch64": 272}, 2
_IN_FLIGHT = lazy_pattern(rb"^scm_fds:\s*0*[1-9]", re.MULTILINE)
_libc = ctypes.CDLL(None, use_errno=True)
_COUNTS = 2
_MAX_FILES = 50_000  # files examined in all: bounds our work; a guest that maps more files can hide some


@dataclass
class OpenFiles:
    """What processes with this worktree at `mounted_at` have open or mapped. Only files on `devices` count: a tmpfs is
    memory.
    """

    worktree: Path
    mounted_at: PurePosixPath
    devices: frozenset[int]
    proc: Path = Path("/proc")
    _met_in_flight: deque[bool] = field(default_factory=lambda: deque([False], maxlen=_COUNTS))

    def measure_deleted(self) -> Iterator[DiskUse]:
        """Disk use of unlinked files. Yields one value for each examined file, zero for a file that does not count.

        Files that we may not examine count as zero.
        """
        known: set[tuple[int, int]] = set()
        self._met_in_flight.append(False)
        for info, path in islice(self._stat_files(), _MAX_FILES):
            key = info.st_dev, info.st_ino
            if stat.S_ISREG(info.st_mode) and not info.st_nlink and info.st_dev in self.devices and key not in known:
                known.add(key)
                yield disk_use_of(info)
            else:
                if stat.S_ISSOCK(info.st_mode) and _has_files_in_flight(path):
                    self._met_in_flight[-1] = True
                yield DiskUse()

    def has_in_flight(self) -> bool:
        """Whether the last two measurements each found a socket with file descriptors that were not received: one that
        is on its way for a moment is no way to hold a file. False for a kernel that does not say so.
        """
        return all(self._met_in_flight)

    def _stat_files(self) -> Iterator[tuple[os.stat_result, str]]:
        with suppress(OSError):  # the worktree was removed
            for process in _find_guest_processes(self.proc, self.worktree.stat(), self.mounted_at):
                with suppress(OSError):  # the process has ended
                    yield from _stat_open_files(self.proc, process)


def _has_files_in_flight(descriptor: str) -> bool:
    """Whether a socket has some, by its path in proc."""
    table, number = os.path.split(descriptor)
    with suppress(OSError):
        return _IN_FLIGHT.search((Path(table).with_name("fdinfo") / number).read_bytes()) is not None
    return False


def _find_guest_processes(proc: Path, worktree: os.stat_result, mounted_at: PurePosixPath) -> Iterator[Path]:
    """Check the uid first: no path is looked up in the roots of other users' processes. The owner of the directory in
    proc is not enough: for a process that is not dumpable it is root.
    """
    for process in proc.iterdir():
        if process.name.isdecimal():
            with suppress(OSError):  # the process has ended
                uid = _UID.search((process / "status").read_bytes())
                if uid is not None and int(uid[1]) == worktree.st_uid and _has_worktree(process, worktree, mounted_at):
                    yield process


def _has_worktree(process: Path, worktree: os.stat_result, mounted_at: PurePosixPath) -> bool:
    """Whether a thread that has not ended has the worktree in its root."""
    for thread in (process / "task").iterdir():
        with suppress(OSError):  # it has ended
            there = os.lstat(thread / "root" / mounted_at.relative_to("/"))
            return (there.st_dev, there.st_ino) == (worktree.st_dev, worktree.st_ino)
    return False


def _stat_open_files(proc: Path, process: Path) -> Iterator[tuple[os.stat_result, str]]:
    """Open and mapped files, and where they are found: a mapping keeps a file after its descriptor was closed."""
    threads = [thread.name for thread in (process / "task").iterdir()]
    for folder in (*_list_tables(threads, process), *_find_mappings(proc, threads)):
        with suppress(OSError), os.scandir(folder) as names:
            for entry in names:
                with suppress(OSError):
                    yield entry.stat(), entry.path


def _list_tables(threads: Sequence[str], process: Path) -> list[Path]:
    """The directories of open files of a process, one for each table."""
    return [process / "task" / thread / "fd" for thread in _choose_one_of_each_table(threads)]


def _choose_one_of_each_table(threads: Sequence[str]) -> list[str]:
    """One thread for each table of open files; each thread, if the kernel does not compare them."""
    chosen: list[str] = []
    for thread in threads:
        if all(_compare_files(thread, other) != 0 for other in chosen):
            chosen.append(thread)
    return chosen


def _compare_files(thread: str, other: str) -> int:
    """kcmp(2): 0 if both threads have the same table of open files; negative if that is unknown."""
    number = _SYS_KCMP.get(platform.machine())
    return -1 if number is None else int(_libc.syscall(number, int(thread), int(other), _KCMP_FILES, 0, 0))


def _find_mappings(proc: Path, threads: Sequence[str]) -> list[Path]:
    """The mappings of a process, which all its threads share, by a thread that has not ended."""
    for thread in threads:
        folder = proc / thread / "map_files"  # hidden in a listing of proc, but there for each thread
        with suppress(OSError), os.scandir(folder) as names:
            if next(names, None) is not None:
                return [folder]
    return []
