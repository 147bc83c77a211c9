"""The end of a task's guest: of one that a killed controller left at work, and of an idle one that is not needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.workbench.lazy import Lazy
from sandbox.workbench.parts import Parts

if TYPE_CHECKING:
    from sandbox.engine import container
    from sandbox.files import checkout
else:  # loaded when there is a guest (docs/adr/0003)
    container = Lazy("sandbox.engine.container")
    checkout = Lazy("sandbox.files.checkout")


def end_orphans(parts: Parts, task_id: str) -> None:
    """Remove what a killed controller left running in a task. The caller holds the task's lock, so no guest is due.

    Costs one look at a file when there is none; an idle guest, in which nothing runs, stays. Raises:
    `engine_unavailable` when there may be one and nobody can tell.
    """
    mark = parts.home.guest_mark(task_id)
    if not mark.exists():
        return
    container.remove(parts.engine, container.task_container(parts.instance, task_id))
    mark.unlink(missing_ok=True)


def end_guest(parts: Parts, task_id: str) -> None:
    """Remove a task's container and its report directory, for good. The caller holds the task's lock.

    Raises: `engine_unavailable` when there may be a container and nobody can tell.
    """
    report = parts.home.report(task_id)
    if report.exists():
        container.remove(parts.engine, container.task_container(parts.instance, task_id))
        checkout.remove_tree(report)
