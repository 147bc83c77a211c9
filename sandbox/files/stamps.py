"""Stat stamps: the stat of a file as evidence that its content has not changed, and when it is no evidence.

A stamp is (inode, size, mtime, ctime, mode, device). It relies on ctime, which no system call can set: the kernel
writes the time of its own clock there whenever content, mode, owner, names or times of an inode change. So setting
mtime back leaves a trace, and so does a rename or a hard link. An equal stamp is evidence only if

- the file was read after its ctime was *past*: within one tick of the kernel's clock (or one second, if the file
  system stores only seconds) a second change leaves the same time (`TrustedBefore.is_evidence`);
- no process that already had the file mapped for writing is alive. The first store through a mapping moves ctime. The
  next stores to that page do not, nor does writing it back, nor unmapping. All mappings of a guest are younger than
  the guest: if a file's ctime is older than every guest that may be alive, no guest has changed it yet, and the first
  change moves ctime (`TrustedBefore.of`, store/guest_times.py);
- the file system works this way. tmpfs lets a mapping that was read first be written without a trace; network file
  systems have other clocks. So the trusted file systems are listed (`keeps_times`);
- the machine has not crashed since: content may reach the disk before the times do (workspaces/statcache.py).
"""

from __future__ import annotations

import ctypes
import os
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import chain
from operator import attrgetter
from pathlib import Path

from sandbox.lazy_dataclass import dataclass

STAMP_BYTES = 48
NO_STAMP = bytes(STAMP_BYTES)
"""Equal to no file's stamp: there is no inode 0."""

_FIELDS = attrgetter("st_ino", "st_size", "st_mtime_ns", "st_ctime_ns", "st_mode", "st_dev")
_CTIME = slice(24, 32)
_SECOND_NS = 1_000_000_000
_TICK_NS = 20_000_000  # twice the longest tick (HZ=100)
_COARSE_CLOCK = 5  # CLOCK_REALTIME_COARSE: the clock of inode times
# statfs(2), f_type. Verified in the source of Linux 6.1: each calls file_update_time when a page of a mapping becomes
# writable, and write-protects the page again when it writes it out.
_KEEP_TIMES = frozenset({0xEF53, 0x58465342, 0x9123683E})  # ext2/3/4, xfs, btrfs

_libc = ctypes.CDLL(None, use_errno=True)


def stamp_of(info: os.stat_result) -> bytes:
    """The stamp of one file."""
    return _pack_stamps([_FIELDS(info)])


def _pack_stamps(rows: Iterable[tuple[int, ...]]) -> bytes:
    rows = list(rows)
    try:
        return array("q", chain.from_iterable(rows)).tobytes()
    except OverflowError:  # a guest may set mtime to the year 2400: its nanoseconds need more than 63 bits
        return array("Q", [value % 2**64 for value in chain.from_iterable(rows)]).tobytes()


def coarse_now_ns() -> int:
    """The kernel's clock for inode times."""
    return time.clock_gettime_ns(_COARSE_CLOCK)


@dataclass(frozen=True)
class TrustedBefore:
    """A time limit: the stamp of a file with an older ctime is evidence."""

    before_ns: int

    @classmethod
    def of(cls, read_at_ns: int, guest_since_ns: int | None) -> TrustedBefore:
        """`read_at_ns`: the clock before the files were read. Look up `guest_since_ns` after taking it."""
        return cls(read_at_ns if guest_since_ns is None else min(read_at_ns, guest_since_ns))

    def is_evidence(self, stamp: bytes) -> bool:
        """Whether any later change of this file, by a present or future process, moves its ctime."""
        ctime_ns = int.from_bytes(stamp[_CTIME], "little" if _IS_LITTLE_ENDIAN else "big", signed=True)
        grain_ns = _TICK_NS if ctime_ns % _SECOND_NS else 2 * _SECOND_NS
        return ctime_ns + grain_ns < self.before_ns


_IS_LITTLE_ENDIAN = array("q", [1]).tobytes()[0] == 1


def keeps_times(folder: Path) -> bool:
    """Whether the file system of `folder` moves ctime at every change that a guest can make."""
    return file_system_type(folder) in _KEEP_TIMES


def file_system_type(folder: Path) -> int:
    """`f_type` of statfs(2); 0 if it cannot be asked."""
    buffer = ctypes.create_string_buffer(512)
    if _libc.statfs(os.fsencode(folder), buffer) != 0:
        return 0
    return ctypes.c_long.from_buffer(buffer).value


@dataclass(frozen=True)
class KnownDirectory:
    """Files of one directory: their names, joined by NUL, in text order, and their stamps in the same order."""

    names: bytes
    stamps: bytes

    def by_name(self) -> dict[str, bytes]:
        """Each name with its stamp."""
        return dict(zip(split_names(self.names), split_stamps(self.stamps), strict=True))


def join_names(names: Iterable[str]) -> bytes:
    """Encode names for `KnownDirectory.names`."""
    return os.fsencode("\0".join(names))


def split_names(names: bytes) -> list[str]:
    """The inverse of `join_names`."""
    return os.fsdecode(names).split("\0") if names else []


def split_stamps(stamps: bytes) -> Iterator[bytes]:
    """Split joined stamps."""
    return (stamps[at : at + STAMP_BYTES] for at in range(0, len(stamps), STAMP_BYTES))


@dataclass
class KnownFiles:
    """Files that a walk leaves out if their stamps have not changed.

    After the walk: `unchanged_folders` are directories that contain exactly their known files, all unchanged.
    `unchanged_files` are the unchanged files of other directories. `new_stamps` are the stamps of all other files in
    known directories.
    """

    folders: Mapping[bytes, KnownDirectory]
    unchanged_folders: set[bytes] = field(default_factory=set)
    unchanged_files: set[bytes] = field(default_factory=set)
    new_stamps: dict[bytes, bytes] = field(default_factory=dict)

    def select_unknown(self, folder: bytes, listed: Sequence[os.DirEntry[str]]) -> Sequence[os.DirEntry[str]]:
        """The entries of a directory that are not known files. `listed`: all entries, in text order, handle open."""
        known = self.folders.get(folder)
        if known is None:
            return listed
        try:
            leaves, others = _split_directories(listed)
            stamps = _pack_stamps([_FIELDS(entry.stat(follow_symlinks=False)) for entry in leaves])
        except OSError:  # a name was removed meanwhile
            return listed
        if stamps == known.stamps and join_names([entry.name for entry in leaves]) == known.names:
            self.unchanged_folders.add(folder)
            return others
        return self._select_changed(folder, known, zip(leaves, split_stamps(stamps), strict=True)) + others

    def _select_changed(
        self, folder: bytes, known: KnownDirectory, leaves: Iterable[tuple[os.DirEntry[str], bytes]]
    ) -> list[os.DirEntry[str]]:
        before, prefix = known.by_name(), folder + b"/" if folder else b""
        news = []
        for entry, stamp in leaves:
            path = prefix + os.fsencode(entry.name)
            if before.get(entry.name) == stamp:
                self.unchanged_files.add(path)
            else:
                self.new_stamps[path] = stamp
                news.append(entry)
        return news


def _split_directories(listed: Sequence[os.DirEntry[str]]) -> tuple[list[os.DirEntry[str]], list[os.DirEntry[str]]]:
    """Split entries into files and links, and directories."""
    folders = [entry for entry in listed if entry.is_dir(follow_symlinks=False)]
    if not folders:
        return list(listed), folders
    return [entry for entry in listed if not entry.is_dir(follow_symlinks=False)], folders
