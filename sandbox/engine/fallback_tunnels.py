"""Tunnels that a kernel has in every network namespace, and whether those of a guest are out of use.

Each driver of a tunnel makes one device when a namespace is made, unless `net.core.fb_tunnels_only_for_init_net` says
otherwise: with the drivers built in, as in the kernel of WSL 2, a guest without a network has `tunl0` and `sit0` beside
`lo`. They are down and have no address, and a guest has no capability to change that (CAP_NET_ADMIN). A device that
is up is in the group 224.0.0.1 (`/proc/net/igmp`), an address is in `if_inet6` or `fib_trie`.

Source: Documentation/admin-guide/sysctl/net.rst; net/ipv4/igmp.c and fib_frontend.c. Seen: Linux 6.18 without a driver.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from sandbox.lazy_pattern import lazy_pattern

FALLBACK_TUNNELS = frozenset(
    {"tunl0", "gre0", "gretap0", "erspan0", "ip_vti0", "sit0", "ip6tnl0", "ip6_vti0", "ip6gre0"}
)
_ACTIVE = lazy_pattern(r"^\d+\t(\S+) *:", re.MULTILINE)
_LOCAL = lazy_pattern(r"\|-- (\S+)\n\s+/32 host LOCAL")
_ADDRESS_FIELDS = 6


def select_idle_tunnels(names: Collection[str], igmp: str, if_inet6: str, fib_trie: str) -> frozenset[str]:
    """Those of the interfaces that are such tunnels, down and without an address; pure. The texts are files of
    /proc/PID/net. None if the texts do not show that `lo` is up, or show an address that could be a tunnel's.
    """
    active = set(_ACTIVE.findall(igmp))
    local = _LOCAL.findall(fib_trie)
    if "lo" not in active or not local or not all(address.startswith("127.") for address in local):
        return frozenset()
    rows = (line.split() for line in if_inet6.splitlines())
    used = active | {row[-1] for row in rows if len(row) == _ADDRESS_FIELDS}
    return FALLBACK_TUNNELS.intersection(names) - used


def find_idle_tunnels(names: Collection[str], pid: int, proc: Path = Path("/proc")) -> frozenset[str]:
    """As `select_idle_tunnels`, for the guest with this process. Costs no read without such a name."""
    if not FALLBACK_TUNNELS.intersection(names):
        return frozenset()
    folder = proc / str(pid) / "net"
    return select_idle_tunnels(names, *(_read(folder / name) for name in ("igmp", "if_inet6", "fib_trie")))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
