"""Memory that the kernel holds for a guest and charges to no control group, in any version (THREATS S236).

- Replies of netlink that were not read: each socket queues as much as the host's `rmem_max` twice (seen: 649 MiB in 150
  sockets of a guest with a limit of 64 MiB).
- Locks on ranges of files: 192 bytes each, in any number (`RLIMIT_LOCKS` has no effect since Linux
  2.4.25). `flock` is bounded: one for each open file, which is charged.

Tables of both may be long, so the host's memory that the kernel cannot take back says when to look: all of this is in
it. Files: proc(5), proc_locks(5), proc_pid_fdinfo(5); net/netlink/af_netlink.c. Seen: Linux 6.18.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

_LOCK_BYTES = 192
_MAX_ROWS = 4_000_000
_LOOK_S, _MOST_FILES, _PART_BYTES = 0.5, 100_000, 1024**2
_MEMINFO_BYTES = 4096
_UNRECLAIMABLE = re.compile(rb"^SUnreclaim:\s+(\d+) kB", re.MULTILINE)


def read_unreclaimable(proc: Path) -> int:
    """Bytes of this host that its kernel holds and cannot take back; 0 if it does not say."""
    found = _UNRECLAIMABLE.search(_read(f"{proc}/meminfo", _MEMINFO_BYTES))
    return int(found[1]) * 1024 if found else 0


def count_netlink_bytes(proc: Path, pid: int) -> int:
    """Bytes that wait in the netlink sockets of a process's network."""
    return sum(int(words[4]) for words in _read_rows(proc / str(pid) / "net" / "netlink") if len(words) > 4)


def estimate_lock_bytes(proc: Path, pids: Iterable[int]) -> int:
    """Bytes of the locks on ranges of files that these processes have. Locks of an open file that several share count
    for each. 0 where this process may not look.

    `/proc/locks` names all locks of the host, but it takes minutes for 100,000, in which none can lock a file: each
    read of a page starts at the first lock. So each open file is asked; where they are too many for a short look, a
    sample of them.
    """
    ends_at = time.monotonic() + _LOOK_S
    paths = list(islice(_list_open_files(proc, pids), _MOST_FILES))
    random.shuffle(paths)
    found = asked = 0
    for path in paths:
        if time.monotonic() > ends_at:
            break
        found += _count_locks(path)
        asked += 1
    return found * len(paths) // max(asked, 1) * _LOCK_BYTES


def _list_open_files(proc: Path, pids: Iterable[int]) -> Iterator[str]:
    for pid in pids:
        folder = f"{proc}/{pid}/fdinfo"
        with suppress(OSError):
            yield from [f"{folder}/{name}" for name in os.listdir(folder)]  # noqa: PTH208 - thousands of calls


def _count_locks(path: str) -> int:
    """Locks in one file of fdinfo: lines `lock: 1: POSIX ADVISORY WRITE PID DEVICE:INODE ...`. There may be many."""
    found = 0
    with suppress(OSError), open(path, "rb", buffering=0) as file:  # noqa: PTH123 - as above
        while part := file.read(_PART_BYTES):
            found += part.count(b": POSIX ") + part.count(b": OFDLCK ")
    return found


def _read_rows(table: Path) -> Iterator[list[bytes]]:
    """Row by row after the first: tables of many MiB are never in memory as a whole."""
    with suppress(OSError), table.open("rb") as file:
        yield from map(bytes.split, islice(file, 1, _MAX_ROWS))


def _read(path: str, most: int) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - thousands of calls
            return file.read(most)
    except OSError:
        return b""
