"""Wishes between processes that checks stop. No engine: whoever runs them here only says that it does."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.models import Check, StoppedCheck, StopResult, Verdict
from sandbox.store.home import Home
from sandbox.store.stop_requests import open_requests, register_request
from sandbox.workbench import Watch
from sandbox.workbench.checks.callbacks import label_checks
from sandbox.workbench.checks.stop import stop_build, stop_checks, stoppable
from tests.unit.agent.test_run_results import run_of
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk

TASK = f"task-{uuid.UUID(int=1)}"
DEADLINE_S = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "stops"
    path.mkdir()
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_wish_reaches_the_request_it_names_and_no_later_one(folder: Path) -> None:
    with register_request(folder, TASK) as first:
        assert not first.is_stop_requested()
        with open_requests(folder, TASK) as found:
            found[0].ask_to_stop()
            found[0].ask_to_stop()
        assert first.is_stop_requested()
    assert names(folder) == []
    with register_request(folder, TASK) as second:
        assert not second.is_stop_requested()


def test_a_wish_that_came_too_late_is_swept_and_stops_nothing(folder: Path) -> None:
    with register_request(folder, TASK), open_requests(folder, TASK) as found:
        pass
    (folder / f"{found[0].path.name}.stop").touch()
    with register_request(folder, TASK) as later, open_requests(folder, TASK) as now:
        assert not later.is_stop_requested()
        assert [each.path for each in now] == [later.path]
        assert names(folder) == [later.path.name]


def test_a_wish_is_for_one_task(folder: Path) -> None:
    other = f"task-{uuid.UUID(int=2)}"
    with (
        register_request(folder, TASK) as ours,
        register_request(folder, other) as theirs,
        open_requests(folder, TASK) as found,
    ):
        for each in found:
            each.ask_to_stop()
        assert (ours.is_stop_requested(), theirs.is_stop_requested()) == (True, False)


def test_what_a_request_did_can_be_read_after_its_end(folder: Path) -> None:
    with register_request(folder, TASK) as request, open_requests(folder, TASK) as found:
        request.note_begin("build")
        request.note_end("build", Verdict.PASSED)
        request.note_begin("test")
        assert not found[0].is_over()
        request.note_end("test", Verdict.KILLED)
        request._append_line("not a verdict")
        (folder / request.path.name).unlink()
        assert found[0].is_over()
        assert found[0].read_checks() == [("build", Verdict.PASSED), ("test", Verdict.KILLED)]


RUNNER = """
import pathlib, sys
from sandbox.store.home import Home
from sandbox.store.stop_requests import register_request
with register_request(pathlib.Path(sys.argv[1]), sys.argv[2]) as request:
    request.note_begin("long")
    print("runs", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(folder: Path, task_id: str) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", RUNNER, str(folder), task_id]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        yield process
        process.kill()


@pytest.mark.slow
def test_a_request_of_a_process_that_was_killed_is_over_and_goes(folder: Path) -> None:
    with another_process(folder, TASK) as process, open_requests(folder, TASK) as found:
        assert not found[0].is_over()
        assert not found[0].clean_up()
        process.kill()
        process.wait()
        assert found[0].is_over()
        assert found[0].clean_up()
        assert found[0].read_checks() == [("long", None)]
    assert names(folder) == []


# --- the use-case


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Desk:
    return Desk(upstream, tmp_path / "home")


@pytest.mark.slow
def test_stopping_where_nothing_runs_is_fine_and_asks_no_engine(desk: Desk) -> None:
    nothing = StopResult(task_id=desk.task.id, stopped=())
    assert desk.workbench.stop_checks(desk.task.id) == nothing
    desk.workbench.close_task(desk.task.id)
    assert desk.workbench.stop_checks(desk.task.id) == nothing
    assert [entry.operation for entry in desk.workbench.log(desk.task.id)].count("stop") == 2


@pytest.mark.slow
@pytest.mark.parametrize("task_id", [TASK, "", "../../x", "task-*"])
def test_stopping_what_is_no_task_is_not_found(desk: Desk, task_id: str) -> None:
    with refused(ErrorCode.NOT_FOUND):
        desk.workbench.stop_checks(task_id)
    with stoppable(desk.workbench._services.home, task_id, watch := Watch()) as heard:
        assert heard is watch
    assert not list(desk.home.rglob("*.stop"))


@pytest.mark.slow
def test_a_stopped_request_hears_of_it_and_what_it_ended_is_told(desk: Desk) -> None:
    """Only what was killed since is told: neither what had passed before nor what passed meanwhile."""
    services = desk.workbench._services
    checks = [Check(id=name, label=name, argv=("true",)) for name in ("before", "meanwhile", "long")]
    at_work, told = threading.Event(), list[str]()

    def announced(check: Check, _run: object) -> None:
        told.append(check.id)

    def run() -> None:
        with (
            stoppable(services.home, desk.task.id, Watch(announce=announced)) as heard,
            open_requests(services.home.stop_requests, desk.task.id) as own,
        ):
            path = own[0].path
            begin(heard, checks[0])
            ended(path, "before", Verdict.PASSED)
            begin(heard, checks[1])
            begin(heard, checks[2])
            at_work.set()
            while not heard.cancelled():
                time.sleep(0.005)
            ended(path, "meanwhile", Verdict.PASSED)
            ended(path, "long", Verdict.KILLED)

    thread = threading.Thread(target=run)
    thread.start()
    assert at_work.wait(DEADLINE_S)
    found = desk.workbench.stop_checks(desk.task.id)
    thread.join(DEADLINE_S)
    assert found.stopped == (StoppedCheck(check_id="long", verdict=Verdict.KILLED),)
    assert told == ["before", "meanwhile", "long"]


def begin(heard: Watch, check: Check) -> None:
    """As a run of a check begins."""
    heard.starts(f"run-{uuid.uuid4().hex}", check)
    heard.announce(check, None)


@pytest.mark.slow
def test_a_check_that_is_announced_with_a_label_is_stopped_and_listed_by_its_id(desk: Desk) -> None:
    """Two sides run the same check: one had passed, the other is killed."""
    services, checks = desk.workbench._services, [Check(id="slow", label="slow", argv=("true",))]
    at_work, over, announced = threading.Event(), threading.Event(), list[str]()

    def run() -> None:
        watch = Watch(announce=lambda check, _run: announced.append(check.id))
        with stoppable(services.home, desk.task.id, watch) as heard:
            for name in ("base", "b"):
                begin(label_checks(heard, f"{name}: "), checks[0])
            label_checks(heard, "base: ").announce(checks[0], run_of(Verdict.PASSED, check_id="slow"))
            label_checks(heard, "c: ").announce(checks[0], run_of(Verdict.PASSED, check_id="slow", cached=True))
            at_work.set()
            while not heard.cancelled() and not over.is_set():
                time.sleep(0.005)
            label_checks(heard, "b: ").announce(checks[0], run_of(Verdict.KILLED, check_id="slow"))

    thread = threading.Thread(target=run)
    thread.start()
    assert at_work.wait(DEADLINE_S)
    try:
        running = desk.workbench.status(desk.task.id).running
        found = desk.workbench.stop_checks(desk.task.id)
    finally:
        over.set()
        thread.join(DEADLINE_S)
    assert running == ("slow",)
    assert found.stopped == (StoppedCheck(check_id="slow", verdict=Verdict.KILLED),)
    assert len(announced) == 5
    assert "slow" not in announced


@pytest.mark.slow
def test_a_request_knows_that_it_was_stopped_by_a_close(desk: Desk) -> None:
    services, at_work, over = desk.workbench._services, threading.Event(), threading.Event()
    reasons = list[str]()

    def run() -> None:
        with stoppable(services.home, desk.task.id, Watch()) as heard:
            reasons.append(heard.stop_reason())
            at_work.set()
            while not heard.stop_reason() and not over.is_set():
                time.sleep(0.005)
            time.sleep(0.05)
            reasons.append(heard.stop_reason())

    thread = threading.Thread(target=run)
    thread.start()
    assert at_work.wait(DEADLINE_S)
    try:
        desk.workbench.close_task(desk.task.id)
    finally:
        over.set()
        thread.join(DEADLINE_S)
    assert reasons == ["", "it was stopped because its task was closed"]


def ended(path: Path, check_id: str, verdict: Verdict) -> None:
    """As the request itself would say it of a run."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, f"{check_id} {verdict.value}\n".encode())
    os.close(descriptor)


@pytest.mark.slow
def test_who_does_not_answer_is_an_error_after_a_while(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.workbench.checks.stop.STOP_WAIT_S", 0.1)
    services = desk.workbench._services
    with stoppable(services.home, desk.task.id, Watch()), refused(ErrorCode.TIMEOUT):
        stop_checks(services, desk.task.id)


def test_a_build_of_layers_that_does_not_stop_is_named(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.workbench.checks.stop.STOP_WAIT_S", 0.1)
    services, run_id = desk.workbench._services, "run-" + "a" * 32
    with stoppable(services.home, desk.repo_id, Watch(), run_id), refused(ErrorCode.TIMEOUT) as caught:
        stop_build(services, desk.repo_id, run_id)
    assert caught.value.brief.startswith(f"The build of layers of {desk.repo_id} did not stop within")


@pytest.mark.parametrize(("name", "words"), [(TASK, f"`sandbox check stop {TASK}`"), ("repository-x", "or stop it")])
def test_who_meets_a_busy_task_is_told_how_to_end_its_checks(tmp_path: Path, name: str, words: str) -> None:
    home = Home(tmp_path)
    home.prepare()
    with home.locked(name), refused(ErrorCode.CONFLICT) as caught, home.locked(name, timeout_s=0.05):
        pass
    assert words in caught.value.hint
