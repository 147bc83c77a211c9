"""Memory of all guests of this host: the bound of the container policy, and the control group that holds it."""

from __future__ import annotations

import os
from pathlib import Path

from sandbox.engine.guest_group import GroupLimits, GuestGroup, ensure_guest_group, read_group_host
from sandbox.policy.container import ContainerPolicy
from sandbox.workbench.controller.services import Services

_KERNEL = Path("/proc/sys/kernel")
_FALLBACK_PIDS = 32_768


def find_guest_group(services: Services) -> GuestGroup:
    """The group for a new guest, with the limits of the policy in force. The group is made, or its limits set again, if
    this process may.

    Raises: errors of the engine, `policy_violation`.
    """
    if not services.guest_engine.is_local:
        return GuestGroup(obstacle="the engine is not on this host")
    policy = services.policies.container.container
    return ensure_guest_group(read_group_host(services.engine_facts), policy.group, build_group_limits(policy))


def build_group_limits(policy: ContainerPolicy) -> GroupLimits:
    """The limits of the group on this host. A CPU that guests share with host processes is shared as with one guest."""
    cpus = os.cpu_count() or 1
    return GroupLimits(
        policy.memory_of_all_guests(count_host_bytes()), policy.all_pids or _count_pids() // 2, policy.cpu_shares * cpus
    )


def count_host_bytes() -> int:
    """The memory of this host."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _count_pids() -> int:
    """How many processes and threads the kernel can have."""
    return min(_read_number(_KERNEL / "pid_max"), _read_number(_KERNEL / "threads-max"))


def _read_number(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return _FALLBACK_PIDS
