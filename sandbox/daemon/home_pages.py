"""What the pages of a home show: its tasks, the questions to a person, and the host."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from shutil import disk_usage
from typing import Any

from sandbox.errors import SandboxError
from sandbox.models import Approval, ApprovalState, CheckRun, GuestTable, TaskStatus
from sandbox.workbench import Workbench

MAX_TASKS, MAX_EVENTS = 100, 20
"""Shown on the first page."""

ASKED_AT_ONCE, ANSWER_S = 8, 2.0
"""Of the workers of a cluster, for the first page."""

_LOOK_S = 0.25
"""Between the two looks at the guests: CPU time is a rate."""


def read_home(person: Workbench) -> Mapping[str, Any]:
    """Open tasks, the newest first, each with its newest run."""
    tasks = [task for task in person.tasks() if task.status is not TaskStatus.CLOSED]
    shown = sorted(tasks, key=lambda task: task.created_at, reverse=True)[:MAX_TASKS]
    last = find_last_runs(person, [task.id for task in shown])
    return {
        "repositories": person.repositories(),
        "rows": [(task, last.get(task.id)) for task in shown],
        "left_out": len(tasks) - len(shown),
        "questions": len(_list_questions(person.approvals())),
        "events": person.events(MAX_EVENTS)[::-1],
    }


def find_last_runs(person: Workbench, task_ids: Sequence[str]) -> Mapping[str, CheckRun | None]:
    """The newest run of each task. Workers of a cluster are asked side by side, and one that does not answer within
    `ANSWER_S` keeps no page from being shown.
    """
    if not person.has_cluster:
        return {task_id: find_last_run(person, task_id) for task_id in task_ids}
    found: dict[str, CheckRun | None] = {}
    left = SimpleQueue[str]()

    def ask() -> None:
        with suppress(Empty):
            while True:
                task_id = left.get_nowait()
                found[task_id] = find_last_run(person, task_id)

    for task_id in task_ids:
        left.put(task_id)
    threads = [threading.Thread(target=ask, name="last-runs", daemon=True) for _ in range(ASKED_AT_ONCE)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + ANSWER_S
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    with suppress(Empty):  # or they would go on for those that are left
        while True:
            left.get_nowait()
    return dict(found)


def find_last_run(person: Workbench, task_id: str) -> CheckRun | None:
    """The newest run of a task; None if it has none, or was removed meanwhile."""
    try:
        return next(iter(person.runs(task_id, 1)), None)
    except SandboxError:
        return None


def _list_questions(found: tuple[Approval, ...]) -> list[Approval]:
    return [one for one in found if one.state is ApprovalState.PENDING]


def read_approvals(person: Workbench) -> Mapping[str, Any]:
    """Open questions, and approvals in force."""
    found = person.approvals()
    return {
        "questions": _list_questions(found),
        "in_force": [one for one in found if one.state is ApprovalState.APPROVED],
    }


def read_host(person: Workbench) -> Mapping[str, Any]:
    """What `doctor`, `top` and `layers list` say, and the file system of the home."""
    settings = person.settings
    layers = person.layers()
    return {
        "home": person.home,
        "probes": person.doctor(),
        "guests": _read_guests(person),
        "parallel": settings.container.parallel_on_this_host,
        "space": disk_usage(person.home),
        "floor": settings.disk.min_free_bytes,
        "spares": len(person.pool()),
        "spares_wanted": settings.pool.size,
        "layers": layers,
        "layers_bytes": sum(layer.bytes for layer in layers),
        "layers_limit": settings.layers.max_bytes,
    }


def _read_guests(person: Workbench) -> GuestTable | None:
    """None without an engine; `doctor` says why."""
    try:
        before = person.guests()
        time.sleep(_LOOK_S)
        return person.guests(before)
    except SandboxError:
        return None
