"""Deleted files that guests still have open. They fill a disk, and a walk does not find them (THREATS L04).

A process is a guest's if its root has this worktree at the mount point. Threads are asked, not processes: a process has
no files any more when its first thread has ended, and clone(2) can give a thread a table of files of its own. Where
files may be open that no table shows, only signs of it are found (in_flight.py).
"""

from __future__ import annotations

import os
import re
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath

from sandbox.files.disk_usage import DiskUse, disk_use_of
from sandbox.files.file_tables import MAX_FILES, choose_one_of_each_table
from sandbox.files.in_flight import UnixSockets, has_files_in_flight, waits_in_keeping_call
from sandbox.lazy_pattern import lazy_pattern

_CONTAINER_ID = lazy_pattern(rb"[0-9a-f]{64}")
_MAPPED = lazy_pattern(rb"^\S+ \S+ \S+ ([0-9a-f]+):([0-9a-f]+) \d+ .* \(deleted\)$", re.MULTILINE)
_UID = lazy_pattern(rb"^Uid:\t(\d+)\t", re.MULTILINE)
_COUNTS = 2
_DELETED = " (deleted)"  # proc_pid_fd(5): after the former name


@dataclass
class OpenFiles:
    """What processes with this worktree at `mounted_at` have open or mapped. Only files on `devices` count: a tmpfs is
    memory.
    """

    worktree: Path
    mounted_at: PurePosixPath
    devices: frozenset[int]
    proc: Path = Path("/proc")
    _met_unseen: deque[bool] = field(default_factory=lambda: deque([False], maxlen=_COUNTS))

    def measure_deleted(self) -> Iterator[DiskUse]:
        """Disk use of unlinked files. Yields one value for each examined file, zero for a file that does not count,
        and for each that is examined only for signs of others. The measurement begins with the call.

        Files that we may not examine count as zero; those of a guest are such a sign.
        """
        self._met_unseen.append(False)
        return self._measure()

    def _measure(self) -> Iterator[DiskUse]:
        known: set[tuple[int, int]] = set()
        in_tables: set[int] = set()
        sockets = UnixSockets(self.proc)
        for number, (info, path) in enumerate(islice(self._stat_files(sockets), MAX_FILES), 1):
            self._note_unseen(number == MAX_FILES)
            key = info.st_dev, info.st_ino
            if key not in known and info.st_dev in self.devices and _is_deleted(info, path):
                known.add(key)
                yield disk_use_of(info)
            else:
                if stat.S_ISSOCK(info.st_mode):
                    in_tables.add(info.st_ino)
                    self._note_unseen(has_files_in_flight(path))
                yield DiskUse()
        for is_lost in sockets.find_lost(in_tables):
            self._note_unseen(is_lost)
            yield DiskUse()

    def may_hide_files(self) -> bool:
        """Whether the last two measurements each met a sign of open files that no table shows: a descriptor that is on
        its way for a moment is no way to keep a file.
        """
        return all(self._met_unseen)

    def note_denied(self) -> None:
        """Files that we may not examine are a sign of others."""
        self._note_unseen(True)

    def _note_unseen(self, is_met: bool) -> None:
        self._met_unseen[-1] = self._met_unseen[-1] or is_met

    def _stat_files(self, sockets: UnixSockets) -> Iterator[tuple[os.stat_result, str]]:
        with suppress(OSError):  # the worktree was removed
            for process in self._find_guest_processes(self.worktree.stat()):
                with suppress(OSError):  # the process has ended
                    threads = sorted((process / "task").iterdir())
                    for thread in threads:
                        sockets.list_of(thread)
                        self._note_unseen(waits_in_keeping_call(thread))
                    yield from _stat_open_files(self.proc, threads)
                    self._note_unseen(_has_hidden_mappings(self.proc, threads, self.devices))

    def _find_guest_processes(self, worktree: os.stat_result) -> Iterator[Path]:
        """Check the uid first: no path is looked up in the roots of other users' processes. The owner of the directory
        in proc is not enough: for a process that is not dumpable it is root.

        A process of that user in a container may be the guest's if we may not look up its root (PR_SET_DUMPABLE of
        prctl(2); a controller without CAP_SYS_PTRACE).
        """
        for process in self.proc.iterdir():
            if process.name.isdecimal():
                with suppress(OSError):  # the process has ended
                    uid = _UID.search((process / "status").read_bytes())
                    if uid is None or int(uid[1]) != worktree.st_uid:
                        continue
                    try:
                        if _has_worktree(process, worktree, self.mounted_at):
                            yield process
                    except PermissionError:
                        self._note_unseen(_CONTAINER_ID.search((process / "cgroup").read_bytes()) is not None)


def _is_deleted(info: os.stat_result, path: str) -> bool:
    """Whether a file or directory has no name any more. A directory of an overlay may have one link all the same."""
    if stat.S_ISDIR(info.st_mode) and info.st_nlink:
        with suppress(OSError):  # the process has ended
            return os.readlink(path).endswith(_DELETED)
    return not info.st_nlink and (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode))


def _has_worktree(process: Path, worktree: os.stat_result, mounted_at: PurePosixPath) -> bool:
    """Whether a thread that has not ended has the worktree in its root. Raises: PermissionError."""
    for thread in (process / "task").iterdir():
        try:
            there = os.lstat(thread / "root" / mounted_at.relative_to("/"))
        except PermissionError:
            raise
        except OSError:  # it has ended
            continue
        return (there.st_dev, there.st_ino) == (worktree.st_dev, worktree.st_ino)
    return False


def _stat_open_files(proc: Path, threads: Sequence[Path]) -> Iterator[tuple[os.stat_result, str]]:
    """Open and mapped files, and where they are found: a mapping keeps a file after its descriptor was closed, and a
    process keeps its program and the directory of each thread.
    """
    for thread in threads:
        for name in ("cwd", "exe"):
            with suppress(OSError):
                yield (thread / name).stat(), str(thread / name)
    tables = (thread / "fd" for thread in choose_one_of_each_table(threads))
    for folder in (*tables, *_find_mappings(proc, threads)):
        with suppress(OSError), os.scandir(folder) as names:
            for entry in names:
                with suppress(OSError):
                    yield entry.stat(), entry.path


def _find_mappings(proc: Path, threads: Sequence[Path]) -> list[Path]:
    """The mappings of a process, which all its threads share, by a thread that has not ended."""
    for thread in threads:
        folder = proc / thread.name / "map_files"  # hidden in a listing of proc, but there for each thread
        with suppress(OSError), os.scandir(folder) as names:
            if next(names, None) is not None:
                return [folder]
    return []


def _has_hidden_mappings(proc: Path, threads: Sequence[Path], devices: frozenset[int]) -> bool:
    """Whether a process maps a deleted file on these devices that we may not look up: without CAP_CHECKPOINT_RESTORE
    only the names of mapped files can be read (proc_pid_map_files(5)).
    """
    for folder in _find_mappings(proc, threads):
        try:
            next(folder.iterdir()).stat()
        except PermissionError:
            found = _MAPPED.findall((folder.parent / "maps").read_bytes())
            return any(os.makedev(int(major, 16), int(minor, 16)) in devices for major, minor in found)
        except (OSError, StopIteration):  # it has ended
            return False
    return False
