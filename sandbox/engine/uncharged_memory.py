"""Memory that the kernel holds for a guest and charges to no control group, in any version (THREATS S236).

- Replies of netlink that were not read: each socket queues as much as the host's `rmem_max` twice (seen: 649 MiB in 150
  sockets of a guest with a limit of 64 MiB).
- Locks of processes on ranges of files: 192 bytes each, in any number (`RLIMIT_LOCKS` has no effect since Linux
  2.4.25). `flock` is bounded: one for each open file, which is charged. Those of open files are denied (seccomp).

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
_LOOK_S, _SAMPLE, _PART_BYTES = 0.5, 400, 1024**2
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
    """Bytes of the locks on ranges of files that these processes have. 0 where this process may not look.

    `/proc/locks` names all locks of the host, but it takes minutes for 100,000, in which none can lock a file: each
    read of a page starts at the first lock. So open files are asked: of each process a sample, and of processes as many
    as a short look allows, in any order.
    """
    ends_at = time.monotonic() + _LOOK_S
    folders = [f"{proc}/{pid}/fdinfo" for pid in pids]
    random.shuffle(folders)
    found = asked = 0
    for folder in folders:
        if time.monotonic() > ends_at:
            break
        found += _estimate_locks(folder)
        asked += 1
    return found * len(folders) // max(asked, 1) * _LOCK_BYTES


def _estimate_locks(folder: str) -> int:
    """Locks of one process. Descriptors of one open file show the same ones, which count once."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - hundreds of calls
    except OSError:
        return 0
    sample = random.sample(names, min(len(names), _SAMPLE))
    of_files: dict[bytes, int] = {}
    for name in sample:
        inode, count = _read_locks(f"{folder}/{name}")
        if count:
            of_files[inode] = max(of_files.get(inode, 0), count)
    return sum(of_files.values()) * len(names) // max(len(sample), 1)


def _read_locks(path: str) -> tuple[bytes, int]:
    """The inode of an open file (Linux 5.14), and how many locks it has: `lock: 1: POSIX ADVISORY WRITE PID ...`."""
    inode, found = b"", 0
    with suppress(OSError), open(path, "rb", buffering=0) as file:  # noqa: PTH123 - as above
        while part := file.read(_PART_BYTES):
            inode = inode or part.partition(b"ino:\t")[2].partition(b"\n")[0]
            found += part.count(b": POSIX ")
    return inode, found


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
