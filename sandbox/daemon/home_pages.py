"""What the pages of a home show: its tasks, the questions to a person, the host, and its storage."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Any

from sandbox.daemon.kept_answers import KeptAnswers
from sandbox.errors import SandboxError
from sandbox.files.disk_usage import FreeSpace
from sandbox.lazy_dataclass import dataclass
from sandbox.models import (
    Approval,
    ApprovalState,
    CheckRun,
    GuestTable,
    HomeEvent,
    LeftoverAction,
    PlaceState,
    ProbeLevel,
    TaskPlace,
    TaskStatus,
)
from sandbox.workbench import Workbench
from sandbox.workbench.controller.rule_changes import OPERATION
from sandbox.workbench.reconciling.evictions import limit_of

MAX_TASKS, MAX_EVENTS = 100, 20
"""Shown on the first page."""

_EVENTS_READ = 100
_LEVELS = (ProbeLevel.FAIL, ProbeLevel.WARN, ProbeLevel.OK)

ASKED_AT_ONCE, ANSWER_S = 8, 2.0
"""Of the workers of a cluster, for the first page."""

_LOOK_S = 0.25
"""Between the two looks at the guests: CPU time is a rate."""


def read_home(person: Workbench) -> Mapping[str, Any]:
    """Open tasks, the newest first, each with its newest run."""
    tasks = [task for task in person.tasks() if task.status is not TaskStatus.CLOSED]
    shown = sorted(tasks, key=lambda task: task.created_at, reverse=True)[:MAX_TASKS]
    places = person.places([task.id for task in shown])
    last = find_last_runs(person, [task.id for task in shown if not is_out_of_reach(places.get(task.id))])
    repositories = person.repositories()
    return {
        "repositories": repositories,
        **_read_sizes(person, [repository.id for repository in repositories]),
        "rows": [(task, last.get(task.id), places.get(task.id)) for task in shown],
        "left_out": len(tasks) - len(shown),
        "questions": len(_list_questions(person.approvals())),
        "events": group_events(person.events(_EVENTS_READ)[::-1])[:MAX_EVENTS],
    }


@dataclass(frozen=True)
class EventGroup:
    """One event, or changes of rules or cleanings that followed each other: a new version may change ten profiles at
    once, and most cleanings find little.

    `names`: of all of them, as `HomeEvent.list_names`.
    """

    newest: HomeEvent
    count: int
    names: tuple[str, ...]


def group_events(events: Sequence[HomeEvent]) -> list[EventGroup]:
    """In the order of `events`, the newest first. Pure."""
    groups: list[EventGroup] = []
    for event in events:
        names = event.list_names()
        before = groups[-1] if groups else None
        if before is not None and _is_more_of(before.newest, event):
            groups[-1] = EventGroup(before.newest, before.count + 1, before.names + names)
        else:
            groups.append(EventGroup(event, 1, names))
    return groups


def _is_more_of(newer: HomeEvent, event: HomeEvent) -> bool:
    one, other = newer.operation, event.operation
    return one.operation == other.operation and one.operation in {OPERATION, "gc"} and one.result == other.result


def is_out_of_reach(place: TaskPlace | None) -> bool:
    """Whether each question about a task's files would wait: with it in the line for a worker, or for a cluster that
    does not answer.
    """
    return place is not None and place.state is not PlaceState.ON_WORKER


def _read_sizes(person: Workbench, repo_ids: Sequence[str]) -> Mapping[str, Any]:
    """What repositories held when the home was measured last, with their limits: to measure takes seconds."""
    measured = person.last_storage()
    held = {} if measured is None else measured.repositories
    return {
        "measured_at": None if measured is None else datetime.fromtimestamp(measured.at, UTC),
        "sizes": {repo_id: (held.get(repo_id), limit_of(person.settings, repo_id) or None) for repo_id in repo_ids},
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


def read_host(person: Workbench, kept: KeptAnswers) -> Mapping[str, Any]:
    """What `doctor`, `top` and `layers list` say, and the file system of the home. `doctor` was asked at `asked_at`."""
    settings = person.settings
    layers, measured = person.layers(), person.last_storage()
    probes = kept.probes.get(person.doctor)
    return {
        "home": person.home,
        "held": None if measured is None else measured.bytes,
        "held_limit": settings.storage.max_bytes or None,
        "measured_at": None if measured is None else datetime.fromtimestamp(measured.at, UTC),
        "probes": sorted(probes.value, key=lambda probe: _LEVELS.index(probe.level)),
        "asked_at": probes.at,
        "guests": _read_guests(person),
        "parallel": settings.container.parallel_on_this_host,
        "space": FreeSpace.of(person.home),
        "floor": settings.disk,
        "spares": len(person.pool()),
        "spares_wanted": settings.pool.size,
        "layers": layers,
        "layers_bytes": sum(layer.bytes for layer in layers),
        "layers_limit": settings.layers.max_bytes,
    }


def read_storage(person: Workbench, kept: KeptAnswers) -> Mapping[str, Any]:
    """What `sandbox storage` said when the home was measured last."""
    found = kept.storage.get(person.storage).value
    freed = sum(left.bytes for left in found.reclaimable if left.action is LeftoverAction.REMOVED)
    return {"found": found, "freed_bytes": freed, "logs_limit": person.settings.keep.logs_bytes or None}


def _read_guests(person: Workbench) -> GuestTable | None:
    """None without an engine; `doctor` says why."""
    try:
        before = person.guests()
        time.sleep(_LOOK_S)
        return person.guests(before)
    except SandboxError:
        return None
