"""Memory of network buffers: data that was sent to a socket and not read yet. The kernel holds it for the guest.

Control groups of version 2 charge it to a guest's memory. Version 1 has a counter of its own (`memory.kmem.tcp.*`), for
UDP too, which starts with the first limit and counts sockets that are made after it. Engines do not set it: runc
ignores the option `KernelMemoryTCP`.

Both leave gaps. A connection that its listener did not accept belongs to no group yet, with all that was sent to it.
And the limit of version 1 slows a socket down, but the kernel goes past it rather than to refuse each socket its least
buffer (seen: 571 MB with a limit of 32 MiB, in 3,900 connections). So the buffers are watched, too.

Guests that share a network (a check and its services) see each other's sockets: the uid tells them apart. Kernels
before 6.17 show uid 0 for sockets that no process holds; and services of a run have one uid. What could be another's
ends a guest only if it is more than all that it could be of may hold together.

What no group is charged for on any version counts with them (`uncharged_memory.py`).

Files: Documentation/admin-guide/cgroup-v1/memory.rst; net/core/sock.c and net/ipv4/tcp_ipv4.c (/proc/net/tcp) of the
kernel. Seen: Linux 6.18, version 1.
"""

from __future__ import annotations

import mmap
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from sandbox.engine.cgroups import (
    SOCKET_LIMIT,
    CgroupPaths,
    list_guest_processes,
    read_charged_sockets,
    read_held_memory,
    read_limit,
    share_of_sockets,
)
from sandbox.engine.container_types import ALONE, Neighbours, StopCondition
from sandbox.engine.uncharged_memory import count_netlink_bytes, estimate_lock_bytes, read_unreclaimable
from sandbox.models import Verdict

_PROC = Path("/proc")
_INTERVAL_S = 0.1
_LOOK_SHARE = 10
"""A look may take one part in so many of the time: tables of sockets can be long."""

_MAX_FILE_BYTES = 65536
_MAX_TABLE_LINES = 1_000_000
"""More than connections in TIME_WAIT, of which a network may have up to 262,144 (`tcp_max_tw_buckets`)."""

_LITTLE = 8
"""Buffers of up to one part in so many of a guest's memory are not looked at."""

_OVERFLOW_UID = b"65534"
"""Of all that this process's user namespace does not have."""

_WITHOUT_DATA = (b"06", b"0A")
"""TIME_WAIT, LISTEN: a listener has numbers of connections in the place of bytes."""

_BEFORE_ACCEPTED = frozenset((b"01", b"03", b"08"))
"""ESTABLISHED, SYN_RECV, CLOSE_WAIT: what a connection can be before it is accepted. A closed socket has no inode, too,
but it leaves these states first (tcp_close), and stays charged to its group.
"""


def limit_socket_memory(groups: CgroupPaths | None, memory_bytes: int) -> None:
    """Let version 1 count and limit the buffers of sockets that a guest makes from now on. As far as this process may:
    `sandbox doctor` says so if not.
    """
    if groups is None or groups.version > 1 or groups.memory is None:
        return
    path = groups.memory / SOCKET_LIMIT
    with suppress(OSError):
        if path.exists():
            path.write_text(str(share_of_sockets(memory_bytes)), encoding="ascii")


class _Pace:
    """When the host's sockets are counted, and when tables of sockets are looked at. All times in seconds.

    Looks are rare while tables are long, but not once sockets of the host hold more than ever since the last look in
    time: a guest fills them within a second.
    """

    def __init__(self) -> None:
        self._next_count_at = self._next_look_at = 0.0
        self._seen_bytes = 0
        self._least_bytes: int | None = None

    def allows_count(self, now: float) -> bool:
        if now < self._next_count_at:
            return False
        self._next_count_at = now + _INTERVAL_S
        return True

    def allows_look(self, now: float, host_bytes: int, margin_bytes: int) -> bool:
        is_early = now < self._next_look_at
        if is_early and host_bytes < self._seen_bytes + margin_bytes:
            return False
        self._seen_bytes = max(host_bytes, self._seen_bytes) if is_early else host_bytes
        return True

    def measure_growth(self, now_bytes: int) -> int:
        """Above the least that it was since `forget_least`."""
        least = now_bytes if self._least_bytes is None else min(self._least_bytes, now_bytes)
        self._least_bytes = least
        return now_bytes - least

    def forget_least(self) -> None:
        self._least_bytes = None

    def note_look(self, started: float, ended: float) -> None:
        self._next_look_at = ended + (ended - started) * _LOOK_SHARE


class SocketWatch:
    """Watches one guest: OOM_KILLED once its memory, its network buffers and what is charged to no group together
    exceed its limit.

    Costs two small files each time; more only while sockets of this host hold a share of what the guest may have, or
    its kernel holds that much more than before. `held_bytes`: all together, if it exceeded the limit.
    """

    def __init__(self, groups: CgroupPaths | None, pid: int, memory_bytes: int, proc: Path = _PROC) -> None:
        """`pid`: of a process in the guest's network. `memory_bytes`: the guest's limit."""
        self.held_bytes: int | None = None
        self._groups = groups
        self._pid = pid
        self._memory_bytes = memory_bytes
        self._proc = proc
        self._neighbours = ALONE
        self._pace = _Pace()

    def watch_beside(self, condition: StopCondition, neighbours: Neighbours = ALONE) -> StopCondition:
        """A condition that is met when the given one is, or the buffers are too large."""
        self._neighbours = neighbours
        return lambda: condition() or self.check()

    def check(self) -> Verdict | None:
        """The `StopCondition` of the buffers alone."""
        started = time.monotonic()
        if self._groups is None or not self._pace.allows_count(started):
            return None
        little = self._memory_bytes // _LITTLE
        growth = self._pace.measure_growth(read_unreclaimable(self._proc))
        on_host = _count_host_bytes(self._proc) + growth
        if not self._pace.allows_look(started, on_host, little) or on_host <= little:
            return None
        if growth > little:
            self._pace.forget_least()
        excess = self._find_excess(self._groups, little, with_uncharged=growth > little)
        self._pace.note_look(started, time.monotonic())
        if excess is None:
            return None
        self.held_bytes = excess
        return Verdict.OOM_KILLED

    def _find_excess(self, groups: CgroupPaths, little: int, *, with_uncharged: bool) -> int | None:
        """What the guest holds, if it is more than it may. `with_uncharged`: the host's kernel holds more than before,
        so what no group is charged for is counted.
        """
        is_charged = groups.version > 1 or read_limit(groups.memory, SOCKET_LIMIT) is not None
        charged = read_charged_sockets(groups) if is_charged else 0
        own, unknown = self._count_waiting(is_charged=is_charged)
        if with_uncharged:
            charged += estimate_lock_bytes(self._proc, list_guest_processes(groups))
            netlink = count_netlink_bytes(self._proc, self._pid)
            own, unknown = (own + netlink, unknown) if self._neighbours == ALONE else (own, unknown + netlink)
        if charged + own + unknown <= little:
            return None
        certain = charged + (read_held_memory(groups) or 0)
        bounds = (
            (certain, 0),
            (certain + own, self._neighbours.same_uid_bytes),
            (certain + own + unknown, self._neighbours.memory_bytes),
        )
        return next((held for held, others in bounds if held > self._memory_bytes + others), None)

    def _count_waiting(self, *, is_charged: bool) -> tuple[int, int]:
        """Bytes in sockets of the guest's uid, and in those of an unknown one. Where the kernel charges sockets to the
        guest, only in those that it did not accept yet. A guest that is alone in its network has all of them.
        """
        folder = self._proc / str(self._pid)
        uid = None if self._neighbours == ALONE else _read_uid(folder)
        own = unknown = 0
        for name in ("tcp", "tcp6") if is_charged else ("tcp", "tcp6", "udp", "udp6"):
            for socket in _read_sockets(folder / "net" / name):
                if is_charged and not socket.is_unaccepted:
                    continue
                if self._neighbours == ALONE or socket.uid == uid:
                    own += socket.waiting_bytes
                elif uid is None or not socket.has_owner:
                    unknown += socket.waiting_bytes
        return own, unknown


def _count_host_bytes(proc: Path) -> int:
    """What TCP and UDP hold on this host, in all networks."""
    pages = 0
    for line in _read(proc / "net" / "sockstat").splitlines():
        words = line.split()
        if b"mem" in words[1:-1]:
            pages += int(words[words.index(b"mem") + 1])
    return pages * mmap.PAGESIZE


def _read_uid(folder: Path) -> bytes | None:
    """The uid of a process, as this process sees it, which is how tables of sockets show it, too."""
    found = re.search(rb"^Uid:\t(\d+)", _read(folder / "status"), re.MULTILINE)
    return found[1] if found and found[1] != _OVERFLOW_UID else None


class _Socket(NamedTuple):
    """`has_owner`: its uid is known."""

    waiting_bytes: int
    uid: bytes
    has_owner: bool
    is_unaccepted: bool


def _read_sockets(table: Path) -> Iterator[_Socket]:
    """From `/proc/net/tcp` or `udp` (proc(5)). Connections that were not accepted have no inode."""
    for words in _read_rows(table):
        if len(words) > 9 and words[3] not in _WITHOUT_DATA:
            sent, _, received = words[4].partition(b":")
            has_inode, uid = words[9] != b"0", words[7]
            is_unaccepted = not has_inode and words[3] in _BEFORE_ACCEPTED
            yield _Socket(int(sent, 16) + int(received, 16), uid, has_inode or uid != b"0", is_unaccepted)


def _read_rows(table: Path) -> Iterator[list[bytes]]:
    """Row by row: tables of many MiB are never in memory as a whole."""
    with suppress(OSError), table.open("rb") as file:
        next(file, None)
        yield from map(bytes.split, islice(file, _MAX_TABLE_LINES))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_FILE_BYTES)
    except OSError:
        return b""
