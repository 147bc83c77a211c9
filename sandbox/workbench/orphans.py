"""Guests of a controller that was killed: they run on without a deadline, and nobody holds their task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.workbench.lazy import Lazy
from sandbox.workbench.parts import Parts

if TYPE_CHECKING:
    from sandbox.engine import container
else:  # loaded when there is an orphan (docs/adr/0003)
    container = Lazy("sandbox.engine.container")


def end_orphans(parts: Parts, task_id: str) -> None:
    """Remove what a killed controller left running in a task. The caller holds the task's lock, so no guest is due.

    Costs one look at a file when there is none. Raises: `engine_unavailable` when there may be one and nobody can tell.
    """
    mark = parts.home.guest_mark(task_id)
    if not mark.exists():
        return
    labels = {container.INSTANCE_LABEL: parts.instance, container.TASK_LABEL: task_id}
    container.remove_labelled(parts.engine, labels)
    mark.unlink(missing_ok=True)
