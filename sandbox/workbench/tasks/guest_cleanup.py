"""Remove a task's container: one that a killed controller left running, or an idle one that is no longer needed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError
from sandbox.store.quarantine import Quarantine
from sandbox.workbench.controller.lazy import Lazy
from sandbox.workbench.controller.services import Parts

if TYPE_CHECKING:
    from sandbox.engine import container
    from sandbox.files import checkout
else:  # loaded when there is a guest (docs/adr/0003)
    container = Lazy("sandbox.engine.container")
    checkout = Lazy("sandbox.files.checkout")


_log = logging.getLogger(__name__)


def end_orphans(services: Parts, task_id: str) -> None:
    """Remove the container that a killed controller left running a check. The caller holds the task's lock, so no
    check of a live controller runs in it.

    Costs one `stat` when there is none. An idle container stays. Raises: `engine_unavailable` when there may be one
    and the engine cannot be asked.
    """
    mark = services.home.guest_mark(task_id)
    if not mark.exists():
        return
    if _ended(services, task_id):
        mark.unlink(missing_ok=True)


def end_guest(services: Parts, task_id: str, *, for_good: bool = True) -> None:
    """Remove a task's idle container and its report directory. The caller holds the task's lock and has called
    `remove_orphans`. Without an engine, the container's lease and `sandbox gc` end it later; but if the task goes on
    (`task_ends` false) this raises `engine_unavailable`: the next check would run in a container with the old files.
    """
    report = services.home.report(task_id)
    if not report.exists():
        return
    try:
        _ended(services, task_id)
    except SandboxError as error:
        if error.code is not ErrorCode.ENGINE_UNAVAILABLE or not for_good:
            raise
        _log.warning("the idle container of %s remains until `sandbox gc`: %s", task_id, error.brief)
    checkout.remove_tree(report)


def _ended(services: Parts, task_id: str) -> bool:
    """Remove the task's containers; False when one is quarantined, as its engine may still start it for a moment."""
    name = container.task_container(services.instance, task_id)
    container.remove(services.engine, name)
    ward = Quarantine(services.home.quarantine)
    if not ward.folder.exists():
        return True
    labels = {container.INSTANCE_LABEL: services.instance, container.TASK_LABEL: task_id}
    for guest in container.list_labelled(services.engine, labels):
        if guest.name.startswith(f"{name}-"):  # created while the container of that name was quarantined
            container.remove(services.engine, guest.id)
    return not any(held == name or held.startswith(f"{name}-") for held in ward.held())
