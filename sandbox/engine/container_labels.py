"""The labels and names of our containers, by which any controller of a home finds them again."""

from __future__ import annotations

INSTANCE_LABEL = "space.sandbox.instance"
TASK_LABEL = "space.sandbox.task"
RUN_LABEL = "space.sandbox.run"
"""Of a container that is removed after one run."""
CHECK_LABEL = "space.sandbox.check"
"""The check for which a container was made that is removed after one run."""
FETCH_LABEL = "space.sandbox.fetch"
"""The step of a container that fetches packages."""
SERVICE_LABEL = "space.sandbox.service"
"""The name of the service that runs in a container; it also has the label of its run."""


TENANT_LABEL = "space.sandbox.tenant"
"""For whom the controller works, if its settings say so."""


def task_container_name(instance: str, task_id: str) -> str:
    """Return the name of a task's container: the same in every process that uses this home."""
    return f"sandbox-{instance}-{task_id.removeprefix('task-')}"
