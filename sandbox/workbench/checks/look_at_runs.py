"""Use-case: look at the checks that run in a task, from another host: what they printed since the last look.

Theory. As a follower on this host (`task_events`), it reads what every controller writes anyway. What the caller has of
each stream is the caller's to say, so this keeps no state between two looks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from sandbox.models.task_look import MOST_LOOKED_AT, LookedAtOutput, LookedAtRun, ReadUpTo, TaskLook
from sandbox.store import runs
from sandbox.store.home import Home
from sandbox.store.records import find_task
from sandbox.store.stop_requests import open_requests

MOST_BYTES = 16 * 1024
"""Of one stream in one look; of more, the last ones."""


def look_at_runs(home: Home, task_id: str, places: Mapping[str, ReadUpTo]) -> TaskLook:
    """The checks that run in the task now, and those of `places`. Raises: `not_found`."""
    task = find_task(home, task_id, allow_closed=True)
    with open_requests(home.stop_requests, task.id) as requests:
        names = {run: check for request in requests for run, check in request.read_runs().items()}
    running = [run for run in names if run not in places and runs.find_run_record(home, task.id, run) is None]
    wanted = [run for run in (*places, *running) if runs.is_run_id(run)][:MOST_LOOKED_AT]
    looked = [_look(home, task.id, run, names.get(run), places.get(run)) for run in wanted]
    return TaskLook(
        runs=[run for run in looked if run.run_id in places or not run.is_over],
        journal_bytes=_size(home.journal(task.id)),
    )


def _look(home: Home, task_id: str, run_id: str, check_id: str | None, place: ReadUpTo | None) -> LookedAtRun:
    """A run without a log is over: its controller failed, or `gc` removed it."""
    record = runs.find_run_record(home, task_id, run_id)  # before its log, which is complete then
    is_over = record is not None or not runs.has_log(home, task_id, run_id)
    upto = place or ReadUpTo()
    return LookedAtRun(
        run_id=run_id,
        check_id=record.check_id if record else check_id,
        is_over=is_over,
        stdout=_read(runs.log_path(home, task_id, run_id, "stdout"), upto.stdout),
        stderr=_read(runs.log_path(home, task_id, run_id, "stderr"), upto.stderr),
    )


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _read(path: Path, start: int) -> LookedAtOutput:
    with suppress(OSError), path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        first = min(max(start, size - MOST_BYTES), size)
        content = os.pread(file.fileno(), MOST_BYTES, first)
        return LookedAtOutput.model_construct(content=content, skipped=max(0, first - start), upto=first + len(content))
    return LookedAtOutput(upto=start)
