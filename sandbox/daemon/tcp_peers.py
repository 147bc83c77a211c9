"""Which user of this host is at the other end of a TCP connection, by the kernel's tables of sockets (proc_pid_net(5)).

The link of the dashboard is among the arguments of the browser that opens it, which every user of this host can read.
So the link alone must not be enough: on a loopback address only our own user, or root, opens a session with it.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

Address = tuple[str, int]
"""An IP address and a port."""

_TABLES = Path("/proc/self/net")
_MAPPED = b"\0" * 10 + b"\xff" * 2  # an IPv4 address, as a socket of IPv6 has it
_LOCAL, _REMOTE, _UID = 1, 2, 7
_ROOT = 0


def is_other_user(client: Address, server: Address, tables: Path = _TABLES) -> bool:
    """Whether the client's end of an open connection is a socket of another user of this host than us and root.

    False also for a client that no table has: it is on another host.
    """
    owners = set(_find_owners(client, server, tables))
    return bool(owners - {_ROOT, os.geteuid()})


def _find_owners(client: Address, server: Address, tables: Path) -> Iterator[int]:
    wanted = {(_write(client[0], mapped=form), _write(server[0], mapped=form)) for form in (False, True)}
    pairs = {(f"{ours}:{client[1]:04X}", f"{theirs}:{server[1]:04X}") for ours, theirs in wanted}
    for name in ("tcp", "tcp6"):
        try:
            with (tables / name).open(encoding="ascii", errors="replace") as rows:
                for row in map(str.split, rows):
                    if len(row) > _UID and (row[_LOCAL], row[_REMOTE]) in pairs:
                        yield int(row[_UID])
        except OSError:  # a kernel without IPv6
            continue


def _write(host: str, *, mapped: bool) -> str:
    """An address as the tables have it: words of four bytes, each in the order of the host."""
    is_six = ":" in host
    packed = socket.inet_pton(socket.AF_INET6 if is_six else socket.AF_INET, host)
    packed = _MAPPED + packed if mapped and not is_six else packed
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed))
