"""The end of a task's guest: of one that a killed controller left at work, and of an idle one that is not needed."""

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


def end_orphans(parts: Parts, task_id: str) -> None:
    """Remove what a killed controller left running in a task. The caller holds the task's lock, so no guest is due.

    Costs one look at a file when there is none; an idle guest, in which nothing runs, stays. Raises:
    `engine_unavailable` when there may be one and nobody can tell.
    """
    mark = parts.home.guest_mark(task_id)
    if not mark.exists():
        return
    if _ended(parts, task_id):
        mark.unlink(missing_ok=True)


def end_guest(parts: Parts, task_id: str, *, for_good: bool = True) -> None:
    """Remove a task's container and its report directory. The caller holds the task's lock and has ended orphans: the
    guest is idle. Without an engine it is left to its lease and to `sandbox gc`, unless the task goes on (`for_good`
    false): its next check would find a container that has the files of before. Raises: `engine_unavailable` then.
    """
    report = parts.home.report(task_id)
    if not report.exists():
        return
    try:
        _ended(parts, task_id)
    except SandboxError as error:
        if error.code is not ErrorCode.ENGINE_UNAVAILABLE or not for_good:
            raise
        _log.warning("the idle container of %s stays until `sandbox gc`: %s", task_id, error.brief)
    checkout.remove_tree(report)


def _ended(parts: Parts, task_id: str) -> bool:
    """Remove the task's container; False when one was given up, which may still come to life for a moment."""
    name = container.task_container(parts.instance, task_id)
    container.remove(parts.engine, name)
    ward = Quarantine(parts.home.quarantine)
    if not ward.folder.exists():
        return True
    labels = {container.INSTANCE_LABEL: parts.instance, container.TASK_LABEL: task_id}
    for guest in container.list_labelled(parts.engine, labels):
        if guest.name.startswith(f"{name}-"):  # made while the one of that name was given up
            container.remove(parts.engine, guest.id)
    return not any(held == name or held.startswith(f"{name}-") for held in ward.held())
