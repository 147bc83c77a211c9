"""Progress of checks on another host: each part of their output once, in order, however looks and answers overlap."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from sandbox.cluster import remote_progress
from sandbox.cluster.remote_progress import Questions, RemoteProgress, RunsSeen, follow_task
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Actor, Check, CheckRun, JournalEntry, TaskEventKind
from sandbox.models.task_look import MOST_LOOKED_AT, LookedAtOutput, LookedAtRun, ReadUpTo, TaskLook
from sandbox.workbench import Watch
from tests.unit.conftest import refused
from tests.unit.receipt_samples import made_run

TASK = "task-00000000-0000-4000-8000-000000000000"
CHECK = Check(id="test", label="test", argv=("true",))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_progress, "FIRST_S", 0.01)
    monkeypatch.setattr(remote_progress, "LONGEST_S", 0.02)


class Worker:
    """A task with one run, which prints to `output` until it is over."""

    def __init__(self, output: bytes = b"") -> None:
        self.run = made_run("test", run_id=f"run-{'1' * 32}")
        self.output, self.is_over, self.looks = output, False, 0
        self.delay_s, self.journal_bytes = 0.0, 1

    def look(self, places: Mapping[str, ReadUpTo]) -> TaskLook:
        self.looks += 1
        is_over, output = self.is_over, self.output
        time.sleep(self.delay_s)
        if is_over and self.run.run_id not in places:
            return TaskLook(journal_bytes=self.journal_bytes)
        start = places.get(self.run.run_id, ReadUpTo()).stdout
        shown = LookedAtOutput.model_construct(content=output[start:], skipped=0, upto=len(output))
        seen = LookedAtRun(run_id=self.run.run_id, check_id="test", is_over=is_over, stdout=shown)
        return TaskLook(runs=[seen], journal_bytes=self.journal_bytes)

    def questions(self) -> Questions:
        return Questions(self.look, lambda _: self.run, lambda: (CHECK,))


class Shown:
    """What a person sees."""

    def __init__(self) -> None:
        self.output, self.announced = b"", list[str]()

    def watch(self) -> Watch:
        return Watch(self._announce, follow=self._follow)

    def _announce(self, check: Check, run: CheckRun | None) -> None:
        self.announced.append(f"{check.id} {run.verdict.value if run else 'begins'}")

    def _follow(self, stream: str, chunk: bytes) -> None:
        assert stream == "stdout"
        self.output += chunk


def wait_for(shown: Shown, output: bytes) -> None:
    until = time.monotonic() + 30
    while shown.output != output:
        assert time.monotonic() < until, shown.output
        time.sleep(0.005)


def test_output_is_shown_while_the_check_runs_and_each_part_once() -> None:
    worker, shown = Worker(b"one\n"), Shown()
    progress = RemoteProgress(worker.questions(), shown.watch())
    progress.begin()
    wait_for(shown, b"one\n")
    assert shown.announced == ["test begins"]
    worker.output += b"two\n"
    wait_for(shown, b"one\ntwo\n")
    worker.output, worker.is_over = worker.output + b"three\n", True
    progress.end()
    progress.finish((worker.run,))
    assert shown.output == b"one\ntwo\nthree\n"
    assert shown.announced == ["test begins", "test passed"]


def test_the_output_of_a_check_that_ended_between_two_looks_is_shown() -> None:
    worker, shown = Worker(b"one\n"), Shown()
    worker.is_over = True
    progress = RemoteProgress(worker.questions(), shown.watch())
    progress.begin()
    progress.end()
    progress.finish((worker.run,))
    assert (shown.output, shown.announced) == (b"one\n", ["test begins", "test passed"])


def test_a_look_that_is_late_loses_and_repeats_no_output() -> None:
    """It began before the answer of the operation came, and ends after it."""
    worker, shown = Worker(b"one\n"), Shown()
    worker.delay_s = 0.3
    progress = RemoteProgress(worker.questions(), shown.watch())
    progress.begin()
    while not worker.looks:
        time.sleep(0.005)
    worker.output, worker.is_over = b"one\ntwo\n", True
    progress.end()
    progress.finish((worker.run,))
    assert (shown.output, shown.announced) == (b"one\ntwo\n", ["test begins", "test passed"])


def test_a_look_that_is_never_answered_delays_the_end_by_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a worker of an earlier version, which answers after the check."""
    monkeypatch.setattr(remote_progress, "LATE_S", 0.1)
    worker, shown, asked, never = Worker(b"one\n"), Shown(), threading.Event(), threading.Event()

    def look(_: object) -> TaskLook:
        asked.set()
        never.wait(60)
        return TaskLook()

    progress = RemoteProgress(Questions(look, lambda _: worker.run, lambda: (CHECK,)), shown.watch())
    progress.begin()
    assert asked.wait(60)
    progress.end()
    progress.finish((worker.run,))
    never.set()
    assert shown.announced == ["test begins", "test passed"]


def test_a_look_that_fails_ends_the_looks_alone() -> None:
    worker, shown = Worker(), Shown()

    def fail(_: object) -> TaskLook:
        worker.looks += 1
        raise SandboxError(ErrorCode.QUOTA_EXCEEDED, "full", reason="history_full")

    progress = RemoteProgress(Questions(fail, lambda _: worker.run, lambda: (CHECK,)), shown.watch())
    before = set(threading.enumerate())
    progress.begin()
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive()
    assert worker.looks == 1
    progress.end()
    progress.finish((worker.run,))
    assert shown.announced == ["test begins", "test passed"]


def test_many_checks_are_followed_in_turns_and_each_part_of_their_output_is_shown_once() -> None:
    """More than one look may ask about. Those that are not answered are not asked about for ever."""
    names = [f"run-{number:032x}" for number in range(MOST_LOOKED_AT + 5)]
    asked: list[int] = []

    def look(places: Mapping[str, ReadUpTo]) -> TaskLook:
        asked.append(len(places))
        shown = LookedAtOutput.model_construct(content=b"x", skipped=0, upto=1)
        return TaskLook(runs=[LookedAtRun(run_id=run, check_id="test", is_over=True, stdout=shown) for run in places])

    seen = RunsSeen(look)
    assert [run.run_id for run in seen.read(names)] == names
    assert asked == [MOST_LOOKED_AT, 5]
    assert seen.read(names) == []


def test_a_worker_cannot_answer_without_end_or_with_other_ids() -> None:
    """Each run of a look is noted in a file. Control: what a worker says."""
    run = {"run_id": f"run-{'1' * 32}"}
    assert len(TaskLook.model_validate({"runs": [run] * 2}).runs) == 2
    for evil in ([run] * 1000, [{"run_id": "run-\x1b]52;c;eA==\x07"}], [{"run_id": f"task-{'1' * 32}"}]):
        with pytest.raises(ValueError, match=r"runs"):
            TaskLook.model_validate({"runs": evil})
    worker = Worker()
    assert Questions(worker.look, lambda _: worker.run, list).find_run("run-of-another-task") is None


def entry(operation: str) -> JournalEntry:
    return JournalEntry(
        at=datetime.now(UTC), actor=Actor.CLI, operation=operation, arguments=f"sha256:{'0' * 64}", result="ok",
        duration_s=0.1,
    )  # fmt: skip


def test_a_task_is_followed_until_it_is_closed() -> None:
    """Also when it goes on on another host, whose journal is another one."""
    worker = Worker(b"one\n")
    journal, reads = [entry("create")], list[int]()

    def read_journal() -> list[JournalEntry]:
        reads.append(len(journal))
        if not journal:
            raise SandboxError(ErrorCode.NOT_FOUND, "closed")
        return [*journal]

    events = follow_task(TASK, worker.questions(), read_journal, 0.01)
    first = [next(events) for _ in range(3)]
    assert [event.kind if event else None for event in first] == [TaskEventKind.STARTED, TaskEventKind.OUTPUT, None]
    assert reads == [1], "each makes the task's history longer"
    worker.is_over = True
    journal.append(entry("check"))
    worker.journal_bytes += 1
    second = [next(events) for _ in range(3)]
    assert [event.kind if event else None for event in second] == [
        TaskEventKind.FINISHED, TaskEventKind.OPERATION, None
    ]  # fmt: skip
    journal[:] = [entry("take-over"), entry("edit")]
    worker.journal_bytes -= 1
    third = [event.operation.operation for event in (next(events), next(events)) if event and event.operation]
    assert third == ["take-over", "edit"]
    journal.clear()
    worker.journal_bytes += 1
    rest = [event.kind for event in events if event is not None]
    assert rest == [TaskEventKind.CLOSED]


def test_a_task_that_is_not_there_is_not_followed() -> None:
    """Control: one that goes away later was closed."""

    def fail() -> list[JournalEntry]:
        raise SandboxError(ErrorCode.NOT_FOUND, "no task")

    with refused(ErrorCode.NOT_FOUND):
        next(follow_task(TASK, Worker().questions(), fail, 0.01))
