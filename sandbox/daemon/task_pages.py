"""What the pages of one task show: the task, its pull request, one run. All of it comes from use-cases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.daemon.diff_view import DiffView, read_diff
from sandbox.daemon.home_pages import is_out_of_reach
from sandbox.daemon.snapshot_graph import build_graph
from sandbox.daemon.syntax_colours import colour_files
from sandbox.daemon.timeline import build_timeline
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import CheckRun, Task, TaskStatus, UsageSeries
from sandbox.workbench import Workbench

MAX_ENTRIES, MAX_RUNS = 1000, 50
"""Read of a task's journal, and shown of its runs."""

SHOWN_ENTRIES = 100
_MEASURED_RUNS = 5
"""Of these the newest with usage over time is drawn."""


def read_task(person: Workbench, task_id: str) -> Mapping[str, Any]:
    """A task; of a closed one, what is kept. Of one that no worker of a cluster answers about, what this home knows."""
    task, states = person.task(task_id), None
    place = person.places([task.id]).get(task.id)
    if not is_out_of_reach(place):
        states = _read_states(person, task)
        place = person.places([task.id]).get(task.id)  # a loss may have been noticed meanwhile
    return {"task": task, "place": place, "is_reached": states is not None, **(states or {})}


def _read_states(person: Workbench, task: Task) -> Mapping[str, Any] | None:
    """What the host of a task says; None if it turns out that it has none now, or none that is reached."""
    try:
        return _ask_host(person, task)
    except SandboxError as error:
        if error.reason not in {"cluster_busy", "no_worker", "server_lost"}:
            raise
        return None


def _ask_host(person: Workbench, task: Task) -> Mapping[str, Any]:
    is_open = task.status is not TaskStatus.CLOSED
    entries = person.log(task.id, limit=MAX_ENTRIES)
    runs = person.runs(task.id, MAX_RUNS)
    return {
        "is_open": is_open,
        "diff": _read_diff(person, task) if is_open else None,
        "checks": person.checks(task.id) if is_open else (),
        "runs": runs,
        "disk": _find_disk(runs),
        "usage": next((found for run in runs[:_MEASURED_RUNS] if (found := _find_usage(person, run.run_id))), None),
        "graph": build_graph(task.id, person.snapshots(task.id), entries),
        "timeline": build_timeline(task.id, entries[-SHOWN_ENTRIES:]),
        "journal_place": (entries[-1].seq or 0) if entries else 0,
        "is_longer": len(entries) > SHOWN_ENTRIES,
    }


def _read_diff(person: Workbench, task: Task) -> DiffView:
    found = read_diff(person.diff(task.id))
    return DiffView(colour_files(found.files), found.is_whole)


def _find_disk(runs: tuple[CheckRun, ...]) -> CheckRun | None:
    """The newest run that counted the task's files."""
    return next((run for run in runs if run.usage.disk_used_bytes is not None and not run.clean_room), None)


def _find_usage(person: Workbench, run_id: str) -> UsageSeries | None:
    """The usage of a run over time, if it was recorded."""
    try:
        return person.usage(run_id)
    except SandboxError as error:
        if error.code is not ErrorCode.NOT_FOUND:
            raise
        return None


def read_pull_request(person: Workbench, task_id: str) -> Mapping[str, Any]:
    """A task's pull request and its checks upstream, asked at the forge now."""
    return {"task": person.task(task_id), "pull": person.pull_request_status(task_id)}


def read_run(person: Workbench, run_id: str) -> Mapping[str, Any]:
    """One run with its logs, and its usage if that was recorded."""
    run = person.past_run(run_id)
    logs = [person.run_log(run_id, None, stream) for stream in ("stdout", "stderr")]
    return {"run": run, "usage": _find_usage(person, run_id), "logs": logs}
