"""Following a task: what other processes write is told once, in order, and safe to show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from sandbox.errors import ErrorCode
from sandbox.models import CheckRun, Limits, TaskEvent, TaskEventKind, Usage, Verdict
from sandbox.store import runs
from sandbox.store.home import Home
from sandbox.store.records import save_run
from sandbox.store.stop_requests import ActiveRequest, register_request
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk

RUN = f"run-{7:032x}"


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "home")
    with desk.workbench:
        yield desk


def record(task_id: str) -> CheckRun:
    return CheckRun(
        run_id=RUN, check_id="test", task_id=task_id, verdict=Verdict.PASSED, exit_code=0, signal=None,
        started_at=datetime.now(UTC), wall_time_s=1.5, usage=Usage(limits=Limits()), stdout_tail="", stderr_tail="",
        stdout_bytes=1, stderr_bytes=0, truncated=False, tree="a" * 40, clean_room=False, cached=False,
        image_digest="sha256:" + "0" * 64, runtime="runc", report=None,
    )  # fmt: skip


def tell(event: TaskEvent) -> tuple[object, ...]:
    what = event.operation.operation if event.operation else event.run.verdict if event.run else event.text
    return event.kind, event.check_id, what


def test_a_check_is_told_from_its_start_to_its_verdict(desk: Desk) -> None:
    home, task_id = Home(desk.home), desk.task.id
    logs = home.logs(task_id)
    home.stop_requests.mkdir(exist_ok=True)
    desk.workbench.snapshot(task_id, "before")  # nothing of the past is told
    with register_request(home.stop_requests, task_id) as request:
        logs.mkdir(exist_ok=True)
        (logs / f"{RUN}.stdout").write_bytes(b"")
        (logs / f"run-{8:032x}.stdout").write_bytes(b"of a killed controller\n")
        request.note_run(RUN, "test")
        events = desk.workbench.watch_task(task_id, 0.01)
        found = [tell(next(events))]
        with (logs / f"{RUN}.stdout").open("ab", buffering=0) as log:
            log.write(b"one\n\x1b[31mtw")
            found.append(tell(next(events)))
            log.write(b"o\x1b[0m\nrest")
            found.append(tell(next(events)))
    save_run(home, task_id, record(task_id))
    found += [tell(next(events)) for _ in range(2)]
    desk.write("f", b"changed\n")
    desk.workbench.commit(task_id, "m")
    desk.workbench.close_task(task_id)
    found += [tell(event) for event in events]
    assert found == [
        (TaskEventKind.STARTED, "test", None),
        (TaskEventKind.OUTPUT, "test", "one\n"),
        (TaskEventKind.OUTPUT, "test", "two\n"),
        (TaskEventKind.OUTPUT, "test", "rest"),
        (TaskEventKind.FINISHED, "test", Verdict.PASSED),
        (TaskEventKind.OPERATION, None, "commit"),
        (TaskEventKind.OPERATION, None, "close"),
        (TaskEventKind.CLOSED, None, None),
    ]


@contextmanager
def killed_request(home: Home, task_id: str) -> Iterator[ActiveRequest]:
    """A request whose process dies: the kernel frees its lock, and its file stays."""
    with register_request(home.stop_requests, task_id) as request:
        held = (request.path, request.path.read_text)
        yield request
        text = held[1]()
    held[0].write_text(text)


def of_a_run(event: TaskEvent | None) -> bool:
    return event is not None and event.run_id is not None


@pytest.mark.parametrize("is_named", [True, False], ids=["", "of another version, which does not name its runs"])
def test_a_run_of_a_killed_controller_ends(desk: Desk, is_named: bool) -> None:
    """Its log is kept. Control: as long as its owner lives it goes on."""
    home, task_id = Home(desk.home), desk.task.id
    log = home.logs(task_id) / f"{RUN}.stdout"
    log.parent.mkdir(exist_ok=True)
    home.stop_requests.mkdir(exist_ok=True)
    events, found = desk.workbench.look_at_task(task_id, 0.001), list[TaskEvent | None]()
    with killed_request(home, task_id) as request:
        assert next(events) is None
        if is_named:
            request.note_run(RUN, "test")
        log.write_bytes(b"one\ntwo")
        found += [next(events) for _ in range(30)]
        assert [event.kind for event in filter(of_a_run, found) if event] == ["started", "output"], "void"
    found += [next(events) for _ in range(30)]
    kinds = [event.kind.value for event in filter(of_a_run, found) if event]
    assert kinds == ["started", "output", "output", "lost"]
    assert log.exists()


def test_a_run_that_ends_between_two_looks_has_its_verdict(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record is saved and its request removed after a follower has looked for the record."""
    home, task_id = Home(desk.home), desk.task.id
    log = home.logs(task_id) / f"{RUN}.stdout"
    log.parent.mkdir(exist_ok=True)
    home.stop_requests.mkdir(exist_ok=True)
    events = desk.workbench.look_at_task(task_id, 0.001)
    real = runs.find_run_record
    with ExitStack() as living:
        living.enter_context(register_request(home.stop_requests, task_id)).note_run(RUN, "test")
        assert next(events) is None
        log.write_bytes(b"")
        assert next(events) is not None
        assert next(events) is None

        def find_and_end(home: Home, owner_id: str, run_id: str) -> CheckRun | None:
            found = real(home, owner_id, run_id)
            if found is None:
                save_run(home, task_id, record(task_id))
                living.close()
            return found

        monkeypatch.setattr(runs, "find_run_record", find_and_end)
        found = [event for event in (next(events) for _ in range(10)) if of_a_run(event)]
    assert [event.kind for event in found if event] == [TaskEventKind.FINISHED]


def test_a_log_that_goes_without_a_verdict_is_lost(desk: Desk) -> None:
    home, task_id = Home(desk.home), desk.task.id
    log = home.logs(task_id) / f"{RUN}.stdout"
    log.parent.mkdir(exist_ok=True)
    home.stop_requests.mkdir(exist_ok=True)
    with register_request(home.stop_requests, task_id) as request:
        request.note_run(RUN, "test")
        log.write_bytes(b"x" * 100_000)
        events = desk.workbench.watch_task(task_id, 0.01)
        assert tell(next(events)) == (TaskEventKind.STARTED, "test", None)
        assert len(next(events).text or "") == 100_000, "a line without an end is not held back for ever"
    log.unlink()
    desk.workbench.close_task(task_id)
    assert [event.kind.value for event in events] == ["operation", "lost", "closed"]
    with refused(ErrorCode.CONFLICT):
        next(desk.workbench.watch_task(task_id))


@pytest.mark.parametrize("method", ["watch_task", "look_at_task"])
def test_a_follower_sees_what_happens_after_its_call_and_the_call_refuses(desk: Desk, method: str) -> None:
    """It began at the first `next`: what had happened by then was not seen."""
    follow = getattr(desk.workbench, method)
    events = follow(desk.task.id, 0.0)
    desk.workbench.snapshot(desk.task.id, "after the call")
    assert next(events).operation.operation == "snapshot"
    with refused(ErrorCode.NOT_FOUND):
        follow(f"task-{uuid4()}", 0.0)
    for poll_s in (-1, float("nan"), float("inf")):
        with refused(ErrorCode.INVALID_INPUT):
            follow(desk.task.id, poll_s)
