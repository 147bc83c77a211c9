"""Whether a process on the other end of a socket may have its command run by the daemon.

A process of our own user may be more confined than we are: by seccomp, by `no_new_privs`, by namespaces, by a smaller
set of capabilities. If we ran its commands, it would act without its confinement. So both are compared, and a process
that differs in any of these runs its commands by itself.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from sandbox.lazy_dataclass import dataclass

_CREDENTIALS = struct.Struct("3i")
_NAMESPACES = ("mnt", "net", "pid", "user", "uts", "ipc", "cgroup")
_CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
_COMPARED = ("Uid", "Gid", *_CAPABILITIES, "NoNewPrivs", "Seccomp", "Seccomp_filters")
"""Filters add up, so a process that has more of them than we is more confined (Linux 5.9 counts them)."""

_WAKE_ALARM = 1 << 35
"""Since version 254 systemd gives CAP_WAKE_ALARM, which wakes a sleeping host, to logins at a seat and to the manager
of a user's units, which leaves it inheritable for them. A login over ssh has nothing of it."""

SO_PEERPIDFD = 77  # Linux 6.5; Python has no name for it


@dataclass(frozen=True)
class PeerProcess:
    """The process that connected. `pid` 0: it is in a PID namespace that we do not see."""

    pid: int
    uid: int


def identify_peer(connection: socket.socket) -> PeerProcess:
    """The process that connected, as the kernel recorded it. Raises: OSError."""
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return PeerProcess(pid, uid)


def is_same_user(peer: PeerProcess) -> bool:
    """Whether the peer is our own user. Root is not, unless we are: its commands would run with fewer rights."""
    return peer.uid == os.geteuid()


def find_difference(connection: socket.socket, peer: PeerProcess) -> str:
    """In what the peer differs from this process; '' if not in what confines it."""
    if peer.pid <= 0:
        return "its PID namespace"
    try:
        theirs, ours = _describe(peer.pid), _describe(os.getpid())
    except OSError:
        return "that it cannot be examined"
    if not _still_runs(connection):
        return "that it has ended"  # another process may have its id by now
    return next((f"its {name}" for name, value in ours.items() if not _is_same(name, theirs.get(name), value)), "")


def _is_same(name: str, theirs: object, ours: object) -> bool:
    if name not in _CAPABILITIES or theirs == ours:
        return theirs == ours
    other, own = int(str(theirs), 16), int(str(ours), 16)
    may_gain = _WAKE_ALARM if name == "CapInh" else 0  # inheritable, it permits nothing
    return not (own & ~other & ~may_gain or other & ~own & ~_WAKE_ALARM)


def read_status(pid: int) -> dict[str, str]:
    """The fields of `/proc/PID/status`. Raises: OSError."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def _describe(pid: int) -> dict[str, object]:
    status = read_status(pid)
    found: dict[str, object] = {name: status.get(name, "") for name in _COMPARED}
    found["Groups"] = _list_groups(status)
    for name in _NAMESPACES:
        with suppress(FileNotFoundError):  # a kernel without this kind
            found[f"{name} namespace"] = str(Path(f"/proc/{pid}/ns/{name}").readlink())
    root = Path(f"/proc/{pid}/root").stat()
    found["root directory"] = (root.st_dev, root.st_ino)
    with suppress(OSError):  # no security module, or one without this file
        found["security label"] = Path(f"/proc/{pid}/attr/current").read_bytes()
    return found


def _list_groups(status: Mapping[str, str]) -> frozenset[str]:
    """All groups, the effective one included: of root, a login lists it among the others, and systemd does not."""
    return frozenset([*status.get("Groups", "").split(), *status.get("Gid", "").split()[1:2]])


def _still_runs(connection: socket.socket) -> bool:
    """Whether the process that connected has not ended. Older kernels cannot say it: True."""
    try:
        fd = int.from_bytes(connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD, 4), sys.byteorder)
    except OSError:
        return True
    try:
        return not select.select([fd], [], [], 0)[0]
    finally:
        os.close(fd)
