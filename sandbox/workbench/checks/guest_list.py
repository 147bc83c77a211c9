"""Use-case: the guests of a home with what they use of their limits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sandbox.engine.container_labels import (
    CHECK_LABEL,
    FETCH_LABEL,
    INSTANCE_LABEL,
    RUN_LABEL,
    SERVICE_LABEL,
    TASK_LABEL,
    TENANT_LABEL,
)
from sandbox.engine.guest_group import GroupHost, read_group_host
from sandbox.engine.guest_usage import GuestUsage, find_guest_cgroups, read_guest_usage
from sandbox.errors import SandboxError
from sandbox.models import Guest, GuestKind, GuestTable, QueuedCheck
from sandbox.store import runs
from sandbox.store.home import Home
from sandbox.store.queue_tickets import MIB, waiting_in_order
from sandbox.store.stop_requests import open_requests
from sandbox.workbench.controller.guest_memory import find_guest_group
from sandbox.workbench.controller.services import Services

if TYPE_CHECKING:
    from sandbox.engine.container_types import ContainerSummary


def list_guests(services: Services, before: GuestTable | None = None) -> GuestTable:
    """The guests that exist now. `before`: an earlier table, for `cpus_used`. Raises: `engine_unavailable`."""
    listed = services.guest_engine.list_containers({INSTANCE_LABEL: services.home.instance_id})
    host = read_group_host(services.engine_facts) if services.guest_engine.is_local else None
    group = find_guest_group(services)
    at = datetime.now(UTC)
    name = services.policies.container.container.group
    waiting = waiting_in_order(services.check_queue.list_tickets())
    guests = [_describe(services.home, guest, _read_usage(host, guest, name), at) for guest in listed]
    if before is not None:
        guests = [_add_rate(guest, before, at) for guest in guests]
    return GuestTable(
        at=at,
        guests=tuple(sorted(guests, key=lambda guest: (not guest.busy, guest.owner or "", guest.container))),
        waiting=len(waiting),
        memory_bytes=group.read_held_bytes(),
        memory_limit_bytes=group.memory_bytes,
        queue=tuple(QueuedCheck(owner=one.owner, memory_bytes=one.memory_mib * MIB) for one in waiting),
    )


def _read_usage(host: GroupHost | None, guest: ContainerSummary, group: str) -> GuestUsage:
    paths = find_guest_cgroups(host, guest.id, group) if host is not None and guest.running else None
    return GuestUsage() if paths is None else read_guest_usage(paths)


def _describe(home: Home, guest: ContainerSummary, usage: GuestUsage, at: datetime) -> Guest:
    labels = guest.labels
    run_id, check = labels.get(RUN_LABEL), labels.get(CHECK_LABEL)
    owner = labels.get(TASK_LABEL) or (_find_owner(home, run_id) if run_id else None)
    checks = (check,) if check else _list_running_checks(home, owner) if not run_id and owner else ()
    return Guest(
        container=guest.name,
        kind=_find_kind(home, guest),
        busy=guest.running and (run_id is not None or bool(checks)),
        owner=owner,
        run_id=run_id,
        check_ids=checks,
        service=labels.get(SERVICE_LABEL),
        tenant=labels.get(TENANT_LABEL),
        age_s=round((at - guest.created_at).total_seconds(), 1) if guest.created_at else None,
        **vars(usage),
    )


def _find_kind(home: Home, guest: ContainerSummary) -> GuestKind:
    for label, kind in (
        (SERVICE_LABEL, GuestKind.SERVICE),
        (FETCH_LABEL, GuestKind.FETCH),
        (CHECK_LABEL, GuestKind.CLEAN_ROOM),
        (RUN_LABEL, GuestKind.OTHER),
        (TASK_LABEL, GuestKind.TASK),
    ):
        if label in guest.labels:
            is_spare = kind is GuestKind.TASK and home.spare_mark(guest.labels[label]).exists()
            return GuestKind.SPARE if is_spare else kind
    return GuestKind.OTHER


def _find_owner(home: Home, run_id: str) -> str | None:
    """The task or repository of a run; None for a run without a log."""
    try:
        return runs.find_owner(home, run_id)
    except SandboxError:
        return None


def _list_running_checks(home: Home, task_id: str) -> tuple[str, ...]:
    """The checks that began in a task and have no verdict, if its container is in use."""
    if not home.guest_mark(task_id).exists():
        return ()
    with open_requests(home.stop_requests, task_id) as requests:
        begun = [found for request in requests if not request.is_over() for found in request.read_checks()]
    return tuple(name for name, verdict in begun if verdict is None)


def _add_rate(guest: Guest, before: GuestTable, at: datetime) -> Guest:
    """The guest with the CPU time it used since `before`. Pure."""
    earlier = next((g.cpu_time_s for g in before.guests if g.container == guest.container), None)
    seconds = (at - before.at).total_seconds()
    if earlier is None or guest.cpu_time_s is None or seconds <= 0:
        return guest
    return guest.model_copy(update={"cpus_used": round(max(0.0, guest.cpu_time_s - earlier) / seconds, 2)})
