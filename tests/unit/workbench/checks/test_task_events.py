"""Following a task: what other processes write is told once, in order, and safe to show."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.models import CheckRun, Limits, TaskEvent, TaskEventKind, Usage, Verdict
from sandbox.store.home import Home
from sandbox.store.records import save_run
from sandbox.store.stop_requests import register_request
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
    events = desk.workbench.watch_task(task_id, 0.01)
    with register_request(home.stop_requests, task_id) as request:
        logs.mkdir(exist_ok=True)
        (logs / f"{RUN}.stdout").write_bytes(b"")
        (logs / f"run-{8:032x}.stdout").write_bytes(b"of a killed controller\n")
        request.note_run(RUN, "test")
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


def test_a_log_that_goes_without_a_verdict_is_forgotten(desk: Desk) -> None:
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
    assert [event.kind for event in events] == [TaskEventKind.OPERATION, TaskEventKind.CLOSED]
    with refused(ErrorCode.CONFLICT):
        next(desk.workbench.watch_task(task_id))
