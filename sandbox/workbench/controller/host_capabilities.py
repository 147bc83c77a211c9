"""What this host can do for tasks, as a worker of a cluster announces it."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.images.imports import ARCHITECTURES
from sandbox.models.workers import HostCapabilities
from sandbox.workbench.controller.disk_admission import Writer
from sandbox.workbench.controller.guest_memory import count_host_bytes
from sandbox.workbench.controller.services import Services

_MEMORY_STEP = 256 * 1024**2
"""Memory is rounded down to it: hosts of one kind differ by some megabytes, and are to be alike."""


def find_capabilities(services: Services, labels: Mapping[str, str]) -> HostCapabilities:
    """Raises: errors of the engine; `policy_violation`."""
    info = services.engine_facts
    policy = services.policies.container.container
    machine = str(info.get("Architecture") or "")
    memory_bytes = policy.memory_of_all_guests(count_host_bytes())
    return HostCapabilities(
        arch=ARCHITECTURES.get(machine, machine),
        cgroup=str(info.get("CgroupVersion") or ""),
        cpus=max(1, int(info.get("NCPU") or 1)),
        memory_bytes=memory_bytes - memory_bytes % _MEMORY_STEP,
        runtimes=tuple(name for name in services.guest_engine.list_runtimes() if name in policy.runtimes),
        labels=labels,
    )


def require_room(services: Services) -> None:
    """Raises: `quota_exceeded` if the disk of this home takes no clone, and so no other task."""
    with services.disk.admit(Writer.FETCH):
        pass
