"""Remove a task's container: one that a killed controller left running, or an idle one that is no longer needed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sandbox.engine.container_labels import INSTANCE_LABEL, TASK_LABEL, task_container_name
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_module import LazyModule
from sandbox.store.quarantine import QuarantineNotes
from sandbox.workbench.controller.services import Services

if TYPE_CHECKING:
    from sandbox.files import checkout
else:  # loaded when there is a guest (docs/adr/0003)
    checkout = LazyModule("sandbox.files.checkout")


_log = logging.getLogger(__name__)


def remove_orphans(services: Services, task_id: str) -> None:
    """Remove the container that a killed controller left running a check. The caller holds the task's lock, so no
    check of a live controller runs in it.

    Costs one `stat` when there is none. An idle container stays. Raises: `engine_unavailable` when there may be one
    and the engine cannot be asked.
    """
    mark = services.home.guest_mark(task_id)
    if not mark.exists():
        return
    if _remove_containers(services, task_id):
        mark.unlink(missing_ok=True)


def remove_guest(services: Services, task_id: str, *, task_ends: bool = True) -> None:
    """Remove a task's idle container and its report directory. The caller holds the task's lock and has called
    `remove_orphans`. Without an engine, the container's lease and `sandbox gc` end it later; but if the task goes on
    (`task_ends` false) this raises `engine_unavailable`: the next check would run in a container with the old files.
    """
    report = services.home.report(task_id)
    if not report.exists():
        return
    try:
        _remove_containers(services, task_id)
    except SandboxError as error:
        if error.code is not ErrorCode.ENGINE_UNAVAILABLE or not task_ends:
            raise
        _log.warning("the idle container of %s remains until `sandbox gc`: %s", task_id, error.brief)
    checkout.remove_tree(report)


def remove_idle_container(services: Services, task_id: str) -> bool:
    """Remove a task's container to free its memory; its report directory stays. The caller holds the task's lock.

    Returns whether it was removed: False when a check of a killed controller may run in it.
    """
    return not services.home.guest_mark(task_id).exists() and _remove_containers(services, task_id)


def _remove_containers(services: Services, task_id: str) -> bool:
    """Remove the task's containers; False when one is quarantined, as its engine may still start it for a moment."""
    name = task_container_name(services.home.instance_id, task_id)
    services.engine.remove_container(name)
    ward = QuarantineNotes(services.home.quarantine)
    if not ward.folder.exists():
        return True
    labels = {INSTANCE_LABEL: services.home.instance_id, TASK_LABEL: task_id}
    for guest in services.engine.list_containers(labels):
        if guest.name.startswith(f"{name}-"):  # created while the container of that name was quarantined
            services.engine.remove_container(guest.id)
    return not any(held == name or held.startswith(f"{name}-") for held in ward.names())
