"""Memory for a check before it starts: what checks may use and what idle containers hold stays within the bound for all
guests (guest_memory.py). Where it does not, idle containers are removed, the one used longest ago first; then the check
waits for others of its home to end.

Other homes of the host are seen by what their guests hold, not by what their checks may still use. So a check can
start and find no memory later; the kernel then holds the bound, and the verdict is `killed` (engine/kill_origin.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sandbox.engine.container_labels import INSTANCE_LABEL, RUN_LABEL, TASK_LABEL
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.store.queue_tickets import Ticket, sum_memory
from sandbox.workbench.controller.guest_memory import count_host_bytes, find_guest_group
from sandbox.workbench.controller.services import Services
from sandbox.workbench.tasks.guest_cleanup import remove_idle_container

if TYPE_CHECKING:
    from sandbox.engine.container_types import ContainerSummary
    from sandbox.engine.guest_group import GuestGroup
    from sandbox.models import Limits

LOOK_INTERVAL_S = 1.0
"""Shortest time between two looks at the containers while the same checks run."""


@dataclass(frozen=True)
class _Look:
    """What was found beside the checks with tickets `running`. `unpromised`: bytes that others hold. `is_last_resort`:
    no idle container is left to remove.
    """

    running: frozenset[str]
    unpromised: int
    is_last_resort: bool
    at: float


def demand_memory(services: Services, limits: Iterable[Limits], owner: str) -> MemoryAdmission:
    """The demand of one check, with the limits of its guest and of those of its services. `owner`: the task or
    repository of its ticket. Raises: as `find_guest_group`.
    """
    group = find_guest_group(services)
    bound = services.policies.container.container.memory_of_all_guests(count_host_bytes())
    needed = sum(one.memory_bytes for one in limits)
    return MemoryAdmission(services, group, min(bound, group.memory_bytes or bound), needed, owner)


class MemoryAdmission:
    """Implements `MemoryDemand` for one check."""

    def __init__(self, services: Services, group: GuestGroup, bound: int, needed_bytes: int, owner: str) -> None:
        self.needed_bytes = needed_bytes
        self._services = services
        self._group = group
        self._bound = bound
        self._owner = owner
        self._look: _Look | None = None

    def fits(self, running: Sequence[Ticket]) -> bool:
        """Reads one file. What running checks hold counts twice here, until `make_room` has looked more closely."""
        look = self._find_look(running)
        if look is None:
            return self._is_enough(running, self._group.read_held_bytes() or 0)
        return self._is_enough(running, look.unpromised) or (look.is_last_resort and not running)

    def make_room(self, running: Sequence[Ticket]) -> bool:
        """Remove idle containers until the check fits. Where that is not enough and no other check of the home runs,
        it fits all the same: there is no end of a check to wait for. Raises: errors of the engine.
        """
        look = self._find_look(running)
        if look is not None and time.monotonic() < look.at + LOOK_INTERVAL_S:
            return False
        unpromised, idle = self._look_at_containers(running)
        for guest in idle:
            if self._is_enough(running, unpromised):
                break
            held = self._group.read_held_bytes_of(guest.id)
            if remove_if_idle(self._services, guest.labels[TASK_LABEL]):
                unpromised -= held
        is_enough = self._is_enough(running, unpromised)
        self._look = _Look(_nonces(running), max(0, unpromised), not is_enough, time.monotonic())
        return self.fits(running)

    def _find_look(self, running: Sequence[Ticket]) -> _Look | None:
        """The last look, unless other checks run now: one that ended may have left memory in its container."""
        return self._look if self._look is not None and self._look.running == _nonces(running) else None

    def _is_enough(self, running: Sequence[Ticket], unpromised: int) -> bool:
        return sum_memory(running) + self.needed_bytes + unpromised <= self._bound

    def _look_at_containers(self, running: Sequence[Ticket]) -> tuple[int, list[ContainerSummary]]:
        """What all guests hold beside that of running checks and of this one; idle containers, longest unused first."""
        services = self._services
        owners = {ticket.owner for ticket in running}
        listed = services.guest_engine.list_containers({INSTANCE_LABEL: services.home.instance_id})
        unpromised = self._group.read_held_bytes() or 0
        idle: list[ContainerSummary] = []
        for guest in listed:
            task_id = guest.labels.get(TASK_LABEL, "")
            kept = bool(task_id) and RUN_LABEL not in guest.labels
            busy = not kept or services.home.guest_mark(task_id).exists()
            if not busy:
                idle.append(guest)
            elif not kept or task_id in owners or task_id == self._owner:
                unpromised -= self._group.read_held_bytes_of(guest.id)
        return unpromised, sorted(idle, key=lambda guest: _last_used_ns(services, guest.labels[TASK_LABEL]))


def remove_if_idle(services: Services, task_id: str) -> bool:
    """Remove a task's container unless an operation holds the task. Returns whether it was removed."""
    try:
        with services.home.locked(task_id, timeout_s=0):
            return remove_idle_container(services, task_id)
    except SandboxError as error:
        if error.code is not ErrorCode.CONFLICT:
            raise
        return False


def _last_used_ns(services: Services, task_id: str) -> int:
    """When a check of a task ended last: no guest can set the change time of its report directory back, and an idle
    one has no process that could set it forward.
    """
    try:
        return services.home.report(task_id).stat().st_ctime_ns
    except OSError:
        return 0


def _nonces(running: Sequence[Ticket]) -> frozenset[str]:
    return frozenset(ticket.nonce for ticket in running)
