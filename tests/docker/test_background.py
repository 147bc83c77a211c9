"""Runs in the background: they outlive the call, the process and the client that started them. Real engine."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from devtools.command import Command
from devtools.waiting import wait_until
from sandbox.engine.connection import DockerEngine
from sandbox.errors import ErrorCode
from sandbox.models import Verdict
from sandbox.workbench import VerifyOptions
from tests.docker.bench import DEADLINE_S, Bench, assert_nothing_runs, began, opened_bench
from tests.unit.conftest import refused


@pytest.fixture
def bench(tmp_path: Path, base_image: str, request: pytest.FixtureRequest) -> Iterator[Bench]:
    with opened_bench(tmp_path, getattr(request, "param", 0)) as found:
        yield found


@pytest.fixture(autouse=True)
def nothing_runs(bench: Bench, engine: DockerEngine) -> Iterator[None]:
    yield
    assert_nothing_runs(bench, engine)


def test_a_started_check_is_told_while_it_runs_and_after_it_was_stopped(bench: Bench) -> None:
    task_id, workbench = bench.task(), bench.workbench
    started = workbench.start_checks(task_id, ["long"])
    wait_until(lambda: "started" in workbench.wait_run(started.run_id, 0).last_lines)
    running = workbench.wait_run(started.run_id, 0.05)

    assert (running.state, running.check_id, running.runs) == ("running", "long", ())
    assert running.check_run_id == running.run_id, "the last check's run has the id of the request"
    assert running.deadline_s is not None
    assert 1000 <= running.deadline_s <= 1000 + running.elapsed_s

    ended = workbench.stop_run(started.run_id)
    assert ended.state == "finished"
    assert [(r.run_id, r.check_id, r.verdict) for r in ended.runs] == [(started.run_id, "long", Verdict.KILLED)]
    assert workbench.stop_run(started.run_id) == ended
    assert bench.records(task_id) == [f"{started.run_id}.json"]


def test_a_check_that_ends_is_answered_at_once_and_by_any_process(bench: Bench) -> None:
    task_id = bench.task()
    started = bench.workbench.start_checks(task_id, ["quick"])
    ended = bench.workbench.wait_run(started.run_id, DEADLINE_S)
    assert (ended.state, ended.runs[0].verdict) == ("finished", Verdict.PASSED)
    other = bench.open()
    assert other.wait_run(started.run_id, 0) == ended
    other.__exit__(None, None, None)


def test_the_same_question_is_answered_by_the_run_at_work(bench: Bench) -> None:
    task_id, other = bench.task(), bench.open()
    first = bench.workbench.start_checks(task_id, ["long"])
    assert bench.workbench.start_checks(task_id, ["long"]).run_id == first.run_id
    assert other.start_checks(task_id, ["long"]).run_id == first.run_id, "another process joins it as well"
    other_question = bench.workbench.start_verify(task_id)
    assert other_question.run_id != first.run_id
    assert bench.workbench.start_verify(task_id).run_id == other_question.run_id
    assert bench.workbench.start_verify(task_id, options=VerifyOptions(cache=False)).run_id != other_question.run_id
    bench.workbench.stop_checks(task_id)
    assert other.wait_run(first.run_id, DEADLINE_S).runs[0].verdict is Verdict.KILLED
    assert bench.workbench.start_checks(task_id, ["quick"]).run_id != first.run_id
    bench.workbench.wait_for_runs()
    other.__exit__(None, None, None)


def test_a_verify_in_the_background_has_its_verification(bench: Bench) -> None:
    task_id = bench.task()
    started = bench.workbench.start_verify(task_id)
    assert started.operation == "verify"
    wait_until(lambda: bench.workbench.wait_run(started.run_id, 0).check_id == "long")
    at_work = bench.workbench.wait_run(started.run_id, 0)
    assert at_work.check_run_id not in {None, started.run_id}
    ended = bench.workbench.stop_run(started.run_id)
    assert ended.verification is not None
    assert (ended.verification.verified, ended.verification.runs[-1].verdict) == (False, Verdict.KILLED)


def test_leaving_the_workbench_stops_what_it_started(bench: Bench) -> None:
    task_id = bench.task()
    with bench.open() as other:
        started = other.start_checks(task_id, ["long"])
        wait_until(began(bench, task_id))
    assert bench.workbench.wait_run(started.run_id, 0).runs[0].verdict is Verdict.KILLED


def test_waiting_for_all_runs_lets_them_end(bench: Bench) -> None:
    task_id = bench.task()
    with bench.open() as other:
        started = other.start_checks(task_id, ["quick"])
        other.wait_for_runs()
        assert other.wait_run(started.run_id, 0).state == "finished"


def test_what_is_wrong_with_a_question_is_an_error(bench: Bench) -> None:
    task_id = bench.task()
    with refused(ErrorCode.NOT_FOUND):
        bench.workbench.start_checks("task-0", ["quick"])
    with refused(ErrorCode.NOT_FOUND):
        started = bench.workbench.start_checks(task_id, ["absent"])
        bench.workbench.wait_run(started.run_id, DEADLINE_S)
    for unknown in ("run-" + "0" * 32, "../../x", ""):
        with refused(ErrorCode.NOT_FOUND):
            bench.workbench.wait_run(unknown, 0)
        with refused(ErrorCode.NOT_FOUND):
            bench.workbench.stop_run(unknown)


def test_a_wait_can_be_cancelled_and_the_run_goes_on(bench: Bench) -> None:
    task_id, gave_up = bench.task(), threading.Event()
    started = bench.workbench.start_checks(task_id, ["long"])
    threading.Timer(0.3, gave_up.set).start()
    found = bench.workbench.wait_run(started.run_id, DEADLINE_S, cancelled=gave_up.is_set)
    assert found.state == "running"
    bench.workbench.stop_run(started.run_id)


def test_a_detached_check_outlives_its_command_and_is_waited_for_by_another(bench: Bench) -> None:
    task_id, person = bench.task(), Command(bench.home)
    started = person.ok("check", "run", task_id, "long", "--detach")
    assert (started["state"], started["task_id"]) == ("running", task_id)
    wait_until(began(bench, task_id))
    waiting = person.start("check", "wait", started["run_id"], "--timeout", "0.5", "--json")
    stdout, _ = waiting.communicate(timeout=DEADLINE_S)
    assert (waiting.returncode, json.loads(stdout)["state"]) == (5, "running")
    ended = person.ok("check", "stop", started["run_id"])
    assert [run["verdict"] for run in ended["runs"]] == ["killed"]
    again = person.start("check", "wait", started["run_id"])
    again.communicate(timeout=DEADLINE_S)
    assert again.returncode == 1

    quick = person.ok("check", "run", task_id, "quick", "--detach")
    assert person.ok("check", "wait", quick["run_id"])["runs"][0]["verdict"] == "passed"
    verify = person.ok("verify", task_id, "--detach")
    person.ok("check", "stop", verify["run_id"])


def test_a_mistake_is_an_error_of_the_detached_command(bench: Bench) -> None:
    task_id, person = bench.task(), Command(bench.home)
    absent = person.start("check", "run", task_id, "absent", "--detach", "--json")
    stdout, _ = absent.communicate(timeout=DEADLINE_S)
    assert (absent.returncode, json.loads(stdout)["error"]["code"]) == (2, "not_found")


def test_the_run_of_a_killed_process_has_no_result_and_says_so(bench: Bench) -> None:
    task_id, person = bench.task(), Command(bench.home)
    started = person.ok("check", "run", task_id, "long", "--detach")
    wait_until(began(bench, task_id))
    present = {int(path.name.partition("-")[0]) for path in (bench.home / "repositories" / "presence").iterdir()}
    (pid,) = present - {os.getpid()}
    os.kill(pid, signal.SIGKILL)
    with refused(ErrorCode.NOT_FOUND) as caught:
        bench.workbench.wait_run(started["run_id"], DEADLINE_S)
    assert "was killed" in caught.value.brief
    bench.workbench.stop_checks(task_id)
    bench.workbench.collect()


@pytest.mark.parametrize("bench", [1], indirect=True, ids=["one-at-a-time"])
def test_a_run_in_the_queue_has_a_position_and_no_deadline(bench: Bench) -> None:
    first, second, workbench = bench.task(), bench.task(), bench.workbench
    running = workbench.start_checks(first, ["long"])
    wait_until(began(bench, first))
    queued = workbench.start_checks(second, ["quick"])
    wait_until(lambda: workbench.wait_run(queued.run_id, 0).queue_position is not None)
    found = workbench.wait_run(queued.run_id, 0)
    assert (found.queue_position, found.deadline_s) == (1, None)
    workbench.stop_run(running.run_id)
    assert workbench.wait_run(queued.run_id, DEADLINE_S).runs[0].verdict is Verdict.PASSED


def test_those_who_ask_the_same_at_once_have_one_run(bench: Bench) -> None:
    task_id, others = bench.task(), [bench.open() for _ in range(3)]
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(others[n % 3].start_checks, task_id, ["long"]) for n in range(8)]
        ids = {found.result(DEADLINE_S).run_id for found in asked}
    assert len(ids) == 1
    bench.workbench.stop_run(ids.pop())
    for other in others:
        other.__exit__(None, None, None)
