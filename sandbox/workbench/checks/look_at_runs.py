"""Use-case: look at the checks that run in a task, from another host: what they printed since the last look.

Theory. As a follower on this host (`task_events`), it reads what every controller writes anyway. What the caller has of
each stream is the caller's to say, so this keeps no state between two looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sandbox.models import CheckRun
from sandbox.models.task_look import MOST_LOOKED_AT, LookedAtOutput, LookedAtRun, ReadUpTo, TaskLook
from sandbox.store import runs
from sandbox.store.growing_files import read_from, size_of
from sandbox.store.home import Home
from sandbox.store.records import find_task
from sandbox.store.stop_requests import read_run_names

MOST_BYTES = 16 * 1024
"""Of one stream in one look; of more, the last ones."""


def look_at_runs(home: Home, task_id: str, places: Mapping[str, ReadUpTo]) -> TaskLook:
    """The checks that run in the task now, and those of `places`. Raises: `not_found`."""
    task = find_task(home, task_id, allow_closed=True)
    names = read_run_names(home.stop_requests, task.id)
    known = [run for run in {**places, **names} if runs.is_run_id(run)]
    records = {run: runs.find_run_record(home, task.id, run) for run in known}  # before logs, which are complete then
    wanted = [run for run, record in records.items() if run in places or record is None][:MOST_LOOKED_AT]
    looked = [
        _look(
            home,
            task.id,
            LookedAtRun(run_id=run, check_id=names.get(run), is_over=run not in names),
            records[run],
            places.get(run),
        )
        for run in wanted
    ]
    return TaskLook(
        runs=[run for run in looked if run.run_id in places or not run.is_over],
        journal_bytes=size_of(home.journal(task.id)),
    )


def _look(home: Home, task_id: str, run: LookedAtRun, record: CheckRun | None, place: ReadUpTo | None) -> LookedAtRun:
    """`run.is_over`: its owner has ended, and saved no record if it was killed. A run without a log is over, too: its
    controller failed, or `gc` removed it.
    """
    upto = place or ReadUpTo()
    return run.model_copy(
        update={
            "check_id": record.check_id if record else run.check_id,
            "is_over": run.is_over or record is not None or not runs.has_log(home, task_id, run.run_id),
            "stdout": _read(runs.log_path(home, task_id, run.run_id, "stdout"), upto.stdout),
            "stderr": _read(runs.log_path(home, task_id, run.run_id, "stderr"), upto.stderr),
        }
    )


def _read(path: Path, start: int) -> LookedAtOutput:
    size = size_of(path)
    first = min(max(start, size - MOST_BYTES), size)
    content = read_from(path, first, MOST_BYTES)
    return LookedAtOutput.model_construct(content=content, skipped=max(0, first - start), upto=first + len(content))
