"""Makes Debian's policy of SELinux enforce on guests alone. Pure.

The policy is not made for a whole system: with all of it in force programs of the system's start fail. SELinux runs
in enforcing mode and has a list of domains for which it only records. The list has all domains but that of guests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

GUEST_DOMAIN = "container_t"
"""What engines start guests as."""

_DOMAINS = re.compile(r"^\(typeattributeset domain \(([^()]+)\)\)", re.MULTILINE)
# Fedora's policy has it for all domains of guests: corecmd_entrypoint_all_executables(svirt_sandbox_domain) in virt.te
# of selinux-policy, and again at the end of container.te of container-selinux (since 2.212). It is for the engine's
# init, a program of the host that the engine mounts into guests.
_ENTRY = "(allow container_t exec_type (file (entrypoint)))\n"
# At the head of Fedora's policy/mcs: a new file has the categories of its folder. With Debian's policy it has those of
# the guest that made it, and no other guest may open it.
_CLASSES = ("file", "dir", "lnk_file", "chr_file", "blk_file", "sock_file", "fifo_file")
_RULES = _ENTRY + "".join(f"(defaultrange {name} target low)\n" for name in _CLASSES)


def find_domains(policy: str) -> list[str]:
    """All types that processes can have, in a policy as `checkpolicy --cil` prints it. Raises: ValueError."""
    found = _DOMAINS.search(policy)
    domains = found[1].split() if found else []
    if GUEST_DOMAIN not in domains:
        raise ValueError(f"a policy without {GUEST_DOMAIN}")
    return domains


def render_module(domains: Iterable[str]) -> str:
    """A module in SELinux's intermediate language, for `semodule`."""
    permissive = "".join(f"(typepermissive {domain})\n" for domain in domains if domain != GUEST_DOMAIN)
    return permissive + _RULES
