"""Progress of checks on a cluster: what begins, what it prints, what ends.

Theory. Each look is an operation, which Temporal keeps in the task's history until the check that runs has ended. So
looks become rarer, of much output the end is read, and looks are refused when the history is long (`history_full`). The
checks go on all the same: progress that cannot be read is not shown.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Check, CheckRun, JournalEntry, StreamName, TaskEvent, TaskEventKind
from sandbox.models.task_look import MOST_LOOKED_AT, LookedAtOutput, LookedAtRun, ReadUpTo, TaskLook
from sandbox.text import DisplayDecoder
from sandbox.workbench import Watch

MOST_NEW = 50
"""Entries of the journal in one look."""

FIRST_S, LONGEST_S, SLOWER = 1.0, 15.0, 1.3
"""Between two looks: the first pause, the longest, and by how much each is longer than the last one."""

_NOT_READ = -1
"""Instead of the size of a journal."""

LATE_S = 5.0
"""How long the end waits for a look that is in progress. A worker of an earlier version answers it after the check."""

Look = Callable[[Mapping[str, ReadUpTo]], TaskLook]
"""Asks the worker. Raises: as `AskedOperations.ask`."""


@dataclass
class RunsSeen:
    """Follows the checks of a task over several looks."""

    look: Look
    journal_bytes: int = 0
    _places: dict[str, ReadUpTo] = field(default_factory=dict)
    _ended: set[str] = field(default_factory=set)

    def read(self, also: Iterable[str] = ()) -> Sequence[LookedAtRun]:
        """What there is since the last call: of each check that runs, and for the last time of one that has ended.
        `also`: runs that may have begun and ended in between.
        """
        places = self._places | {run: ReadUpTo() for run in also if run not in self._ended and run not in self._places}
        asked = [*places.items()]
        found: list[LookedAtRun] = []
        for start in range(0, max(len(asked), 1), MOST_LOOKED_AT):
            look = self.look(dict(asked[start : start + MOST_LOOKED_AT]))
            self.journal_bytes = look.journal_bytes
            found += [run for run in look.runs if run.run_id not in self._ended]
        self._places = {}
        for run in found:
            if run.is_over:
                self._ended.add(run.run_id)
            elif len(self._places) < MOST_LOOKED_AT:
                self._places[run.run_id] = ReadUpTo(stdout=run.stdout.upto, stderr=run.stderr.upto)
        return found


def _list_outputs(seen: LookedAtRun) -> tuple[tuple[StreamName, LookedAtOutput], ...]:
    return ("stdout", seen.stdout), ("stderr", seen.stderr)


def _describe_skipped(output: LookedAtOutput) -> str:
    return f"[{output.skipped} bytes are not shown]\n"


@dataclass(frozen=True)
class Questions:
    """What progress asks of the worker. Raise: as `AskedOperations.ask`."""

    look: Look
    read_run: Callable[[str], CheckRun]
    list_checks: Callable[[], Sequence[Check]]

    def find_run(self, run_id: str) -> CheckRun | None:
        """The record of a run that has ended; None if it cannot be read."""
        try:
            found = self.read_run(run_id)
        except SandboxError:
            return None
        return found if found.run_id == run_id else None


class RemoteProgress:
    """Tells a `Watch` of the checks of a task on another host, from a thread of its own."""

    def __init__(self, ask: Questions, watch: Watch) -> None:
        self._ask, self._watch = ask, watch
        self._seen = RunsSeen(ask.look)
        self._checks: dict[str, Check] | None = None
        self._begun: set[str] = set()
        self._told: set[str] = set()
        self._late: list[LookedAtRun] = []
        self._looking = threading.Lock()
        self._is_over = threading.Event()

    def begin(self) -> None:
        """Show progress from now on."""
        threading.Thread(target=self._follow, name="progress", daemon=True).start()

    def end(self) -> None:
        """Begin no further look."""
        self._is_over.set()

    def finish(self, runs: Sequence[CheckRun]) -> None:
        """End, and show what is left of these checks, which have ended, and the verdicts not shown yet."""
        self.end()
        ended = {run.run_id: run for run in runs}
        if self._looking.acquire(timeout=LATE_S):
            try:
                also = [run.run_id for run in runs if not run.cached]
                last = self._read(also) if self._watch.follow is not None else ()
                for seen in (*self._late, *(last or ())):
                    self._show(seen, ended.get(seen.run_id))
            finally:
                self._looking.release()
        for run in runs:
            self._announce(run)

    def _follow(self) -> None:
        pause = FIRST_S
        while not self._is_over.wait(pause):
            pause = min(pause * SLOWER, LONGEST_S)
            with self._looking:
                found = self._read()
                if found is None:
                    return
                if self._is_over.is_set():  # the answer of the operation came first
                    self._late += found
                    return
                for run in found:
                    self._show(run, self._ask.find_run(run.run_id) if run.is_over else None)

    def _read(self, also: Sequence[str] = ()) -> Sequence[LookedAtRun] | None:
        try:
            return self._seen.read(also)
        except SandboxError:
            return None

    def _show(self, seen: LookedAtRun, run: CheckRun | None) -> None:
        self._begin(seen.run_id, seen.check_id or "")
        if self._watch.follow is not None:
            for stream, output in _list_outputs(seen):
                if output.skipped:
                    self._watch.follow(stream, f"\n{_describe_skipped(output)}".encode())
                if output.content:
                    self._watch.follow(stream, output.content)
        if run is not None:
            self._announce(run)

    def _begin(self, run_id: str, check_id: str) -> None:
        check = self._find_check(check_id)
        if check is not None and run_id not in self._begun:
            self._begun.add(run_id)
            self._watch.announce(check, None)
            self._watch.starts(run_id, check)

    def _announce(self, run: CheckRun) -> None:
        check = self._find_check(run.check_id)
        if check is not None and run.run_id not in self._told:
            self._begin(run.run_id, run.check_id)
            self._told.add(run.run_id)
            self._watch.announce(check, run)

    def _find_check(self, check_id: str) -> Check | None:
        if self._checks is None:
            try:
                self._checks = {check.id: check for check in self._ask.list_checks()}
            except SandboxError:
                self._checks = {}
        return self._checks.get(check_id)


def follow_task(
    task_id: str, ask: Questions, read_journal: Callable[[], Sequence[JournalEntry]], pause_s: float
) -> Iterator[TaskEvent | None]:
    """What happens in a task on another host from now on, and None after each look. Ends when the task is closed.

    `read_journal`: its newest entries, oldest first. Raises: as `AskedOperations.ask`.
    """
    events, seen = _Events(task_id), RunsSeen(ask.look)
    last: JournalEntry | None = None
    pause, first, journal_bytes = FIRST_S, max(pause_s, FIRST_S), _NOT_READ
    while True:
        pause = min(pause * SLOWER, LONGEST_S)
        try:
            found = seen.read()
            entries = read_journal() if seen.journal_bytes != journal_bytes else []
        except SandboxError as error:
            if error.code is not ErrorCode.NOT_FOUND or journal_bytes == _NOT_READ:
                raise
            yield events.make(TaskEventKind.CLOSED)
            return
        if journal_bytes == _NOT_READ:  # what is there at the first look has happened before
            last, entries = next(reversed(entries), None), []
        journal_bytes = seen.journal_bytes
        for run in found:
            yield from events.describe(run, ask.find_run(run.run_id) if run.is_over else None)
        new = entries[entries.index(last) + 1 :] if last in entries else entries
        for entry in new:
            yield events.make(TaskEventKind.OPERATION, operation=entry)
        last = entries[-1] if entries else last
        is_news = any(run.is_over or run.stdout.content or run.stderr.content for run in found)
        pause = first if new or is_news else pause
        yield None
        time.sleep(pause)


class _Events:
    """Makes events of what was seen of a task."""

    def __init__(self, task_id: str) -> None:
        self._task_id = task_id
        self._decoders: dict[tuple[str, str], DisplayDecoder] = {}
        self._begun: set[str] = set()

    def make(self, kind: TaskEventKind, seen: LookedAtRun | None = None, **fields: object) -> TaskEvent:
        """An event of this moment."""
        which = {} if seen is None else {"run_id": seen.run_id, "check_id": seen.check_id}
        return TaskEvent.model_validate(
            {"at": datetime.now(UTC), "kind": kind, "task_id": self._task_id, **which, **fields}
        )

    def describe(self, seen: LookedAtRun, run: CheckRun | None) -> Iterator[TaskEvent]:
        """A check that began, its output, its verdict."""
        if seen.run_id not in self._begun:
            self._begun.add(seen.run_id)
            yield self.make(TaskEventKind.STARTED, seen)
        for stream, output in _list_outputs(seen):
            decoder = self._decoders.setdefault((seen.run_id, stream), DisplayDecoder())
            skipped = _describe_skipped(output) if output.skipped else ""
            text = skipped + decoder.feed(output.content) + (decoder.finish() if seen.is_over else "")
            if text:
                yield self.make(TaskEventKind.OUTPUT, seen, stream=stream, text=text)
        if run is not None:
            yield self.make(TaskEventKind.FINISHED, seen, check_id=run.check_id, run=run)
        elif seen.is_over:
            yield self.make(TaskEventKind.LOST, seen)
