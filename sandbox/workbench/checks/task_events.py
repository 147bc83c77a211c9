"""Use-case: follow what happens in a task, in any process: operations, checks with their output, verdicts.

Theory. A follower reads what every controller writes anyway. Operations are lines of the task's journal, a check that
runs is a log that grows, and a check that has ended is a record beside its log. So following does not slow the running
controllers down, and a follower that is killed leaves no trace.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from sandbox.models import CheckId, CheckRun, StreamName, Task, TaskEvent, TaskEventKind, TaskStatus
from sandbox.store import runs
from sandbox.store.growing_files import read_from, read_lines_from, size_of
from sandbox.store.home import Home
from sandbox.store.journal import parse_entry
from sandbox.store.records import find_task
from sandbox.store.stop_requests import has_request, read_run_names
from sandbox.text import DisplayDecoder
from sandbox.workbench.controller.home_events import require_poll_interval

POLL_S = 0.25
_MOST_BYTES = 1024**2
"""Read of one file at a time: a follower uses little memory, however fast a check writes."""
_LONGEST_LINE = 64 * 1024
"""Characters of a line without an end that are held back."""
_STREAMS: tuple[StreamName, ...] = ("stdout", "stderr")


def follow_task(home: Home, task_id: str, poll_s: float = POLL_S) -> Iterator[TaskEvent]:
    """Yield what happens from this call on, in order of time within a check; a check that runs already first. Ends when
    the task is closed.

    Raises, at the call: `not_found`; `conflict` for a closed task; `invalid_input` for `poll_s`.
    """
    return (event for event in look_at_task(home, task_id, poll_s) if event is not None)


def look_at_task(home: Home, task_id: str, poll_s: float = POLL_S) -> Iterator[TaskEvent | None]:
    """As `follow_task`, and None after each look, so that the caller can end in between."""
    require_poll_interval(poll_s)
    return _look_again(home, task_id, _Follower(home, find_task(home, task_id)), poll_s)


def _look_again(home: Home, task_id: str, follower: _Follower, poll_s: float) -> Iterator[TaskEvent | None]:
    while True:
        is_over = find_task(home, task_id, allow_closed=True).status is TaskStatus.CLOSED
        yield from follower.look()
        if is_over:
            yield follower.event(TaskEventKind.CLOSED)
            return
        yield None
        time.sleep(poll_s)


@dataclass
class _FollowedRun:
    """A run that has begun. `decoders`, `places`: by stream."""

    run_id: str
    check_id: str | None
    places: dict[StreamName, int] = field(default_factory=lambda: dict.fromkeys(_STREAMS, 0))
    decoders: dict[StreamName, DisplayDecoder] = field(
        default_factory=lambda: {stream: DisplayDecoder() for stream in _STREAMS}
    )
    unfinished: dict[StreamName, str] = field(default_factory=lambda: dict.fromkeys(_STREAMS, ""))


class _Follower:
    """What was seen of a task."""

    def __init__(self, home: Home, task: Task) -> None:
        self._home, self._task = home, task
        self._journal_place = size_of(home.journal(task.id))
        self._ended = {path.stem for path in home.logs(task.id).glob("run-*.json")}
        names = self._read_names()
        self._ended |= {run_id for run_id in self._list_logs() if run_id not in names}  # of a killed controller
        self._running: dict[str, _FollowedRun] = {}

    def event(self, kind: TaskEventKind, check: _FollowedRun | None = None, **fields: object) -> TaskEvent:
        """An event of this moment."""
        which = {} if check is None else {"run_id": check.run_id, "check_id": check.check_id}
        return TaskEvent.model_validate(
            {"at": datetime.now(UTC), "kind": kind, "task_id": self._task.id, **which, **fields}
        )

    def look(self) -> Iterator[TaskEvent]:
        """What happened since the last look: checks that run, those that began, operations."""
        for check in list(self._running.values()):
            yield from self._follow_check(check)
        for run_id in sorted(self._list_logs() - self._ended - self._running.keys()):
            self._running[run_id] = _FollowedRun(run_id, self._find_check(run_id))
            yield self.event(TaskEventKind.STARTED, self._running[run_id])
            yield from self._follow_check(self._running[run_id])
        yield from self._read_journal()

    def _follow_check(self, check: _FollowedRun) -> Iterator[TaskEvent]:
        run = self._find_record(check)  # before its log, which is complete then
        is_lost = run is None and self._is_lost(check)
        if is_lost:
            run = self._find_record(check)  # its owner may have ended after it had saved the record
        is_over = is_lost or run is not None
        for stream in _STREAMS:
            yield from self._read_output(check, stream, is_over=is_over)
        if not is_over:
            return
        del self._running[check.run_id]
        self._ended.add(check.run_id)
        yield self.event(TaskEventKind.LOST, check) if run is None else self._finish(check, run)

    def _find_record(self, check: _FollowedRun) -> CheckRun | None:
        return runs.find_run_record(self._home, self._task.id, check.run_id)

    def _finish(self, check: _FollowedRun, run: CheckRun) -> TaskEvent:
        return self.event(TaskEventKind.FINISHED, check, check_id=run.check_id, run=run)

    def _is_lost(self, check: _FollowedRun) -> bool:
        """Whether its owner has ended, which may have been killed: its log is kept then. One that failed deletes it. A
        run that its owner does not name, as other versions do, may be of any owner.
        """
        if not any(self._log(check.run_id, stream).exists() for stream in _STREAMS):
            return True
        names = self._read_names()
        check.check_id = names.get(check.run_id, check.check_id)
        if check.check_id is None:
            return not has_request(self._home.stop_requests, self._task.id)
        return check.run_id not in names

    def _read_output(self, check: _FollowedRun, stream: StreamName, *, is_over: bool) -> Iterator[TaskEvent]:
        while chunk := read_from(self._log(check.run_id, stream), check.places[stream], _MOST_BYTES):
            check.places[stream] += len(chunk)
            text = check.unfinished[stream] + check.decoders[stream].feed(chunk)
            cut = len(text) if len(text) > _LONGEST_LINE and "\n" not in text else text.rfind("\n") + 1
            check.unfinished[stream] = text[cut:]
            if cut:
                yield self.event(TaskEventKind.OUTPUT, check, stream=stream, text=text[:cut])
            if not is_over and len(chunk) < _MOST_BYTES:
                return
        if is_over and (rest := check.unfinished[stream] + check.decoders[stream].finish()):
            check.unfinished[stream] = ""
            yield self.event(TaskEventKind.OUTPUT, check, stream=stream, text=rest)

    def _read_journal(self) -> Iterator[TaskEvent]:
        path = self._home.journal(self._task.id)
        while (found := read_lines_from(path, self._journal_place, _MOST_BYTES))[1] > self._journal_place:
            lines, self._journal_place = found
            for line in lines.splitlines():
                if (entry := parse_entry(line)) is not None:
                    yield self.event(TaskEventKind.OPERATION, operation=entry)

    def _list_logs(self) -> set[str]:
        """The ids of all runs of the task that have a log."""
        return {path.stem for stream in _STREAMS for path in self._home.logs(self._task.id).glob(f"run-*.{stream}")}

    def _find_check(self, run_id: str) -> str | None:
        """The check of a run that began, or has ended already."""
        if (name := self._read_names().get(run_id)) is not None:
            return name
        run = runs.find_run_record(self._home, self._task.id, run_id)
        return None if run is None else run.check_id

    def _read_names(self) -> dict[str, CheckId]:
        return read_run_names(self._home.stop_requests, self._task.id)

    def _log(self, run_id: str, stream: StreamName) -> Path:
        return runs.log_path(self._home, self._task.id, run_id, stream)
