"""Checks that are cancelled, stopped, interrupted or kept waiting: recorded, and nothing left running. Real engine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from devtools.command import Command
from devtools.waiting import wait_until
from sandbox.checks.cancellation import Cancellation
from sandbox.engine.connection import DockerEngine
from sandbox.models import Check, CheckRun, TaskStatus, Verdict
from sandbox.store.queue_tickets import waiting_in_order
from sandbox.store.run_queue import RunQueue
from sandbox.workbench import Watch
from tests.docker.bench import DEADLINE_S, Bench, assert_nothing_runs, began, opened_bench


@pytest.fixture
def bench(tmp_path: Path, base_image: str) -> Iterator[Bench]:
    with opened_bench(tmp_path) as found:
        yield found


@pytest.fixture(autouse=True)
def nothing_runs(bench: Bench, engine: DockerEngine) -> Iterator[None]:
    yield
    assert_nothing_runs(bench, engine)


def test_a_cancelled_check_is_recorded_as_killed_and_later_ones_do_not_start(bench: Bench) -> None:
    task_id, token, heard = bench.task(), Cancellation(), list[tuple[str, CheckRun | None]]()

    def announce(check: Check, run: CheckRun | None) -> None:
        heard.append((check.id, run))

    def follow(_stream: str, _chunk: bytes) -> None:
        threading.Thread(target=token.set).start()
        token.set()

    watch = Watch(announce=announce, follow=follow, cancelled=token.is_set)
    runs = bench.workbench.run_checks(task_id, ["after"], watch)

    assert [(r.check_id, r.verdict) for r in runs] == [("long", Verdict.KILLED)]
    assert runs[0].stdout_tail == "started\n"
    assert runs[0].usage.memory_peak_bytes
    assert heard == [("long", None), ("long", runs[0])]
    assert bench.records(task_id) == [f"{runs[0].run_id}.json"]
    assert not (bench.worktree(task_id) / "after").exists()
    token.set()
    assert bench.workbench.run_checks(task_id, ["quick"])[0].verdict is Verdict.PASSED


def test_what_is_cancelled_before_it_starts_is_recorded_and_starts_nothing(bench: Bench) -> None:
    task_id, token = bench.task(), Cancellation()
    token.set()
    runs = bench.workbench.run_checks(task_id, ["after"], Watch(cancelled=token.is_set))
    assert [(r.check_id, r.verdict, r.exit_code, r.wall_time_s) for r in runs] == [("long", Verdict.KILLED, None, 0.0)]
    assert not (bench.worktree(task_id) / "began").exists()
    assert bench.records(task_id) == [f"{runs[0].run_id}.json"]


def test_a_wish_after_the_end_changes_nothing(bench: Bench) -> None:
    task_id, token = bench.task(), Cancellation()

    def announce(_check: Check, run: CheckRun | None) -> None:
        if run is not None:
            token.set()

    runs = bench.workbench.run_checks(task_id, ["quick"], Watch(announce=announce, cancelled=token.is_set))
    assert [r.verdict for r in runs] == [Verdict.PASSED]


def test_a_clean_room_is_cancelled_too(bench: Bench) -> None:
    task_id, token = bench.task(), Cancellation()
    watch = Watch(follow=lambda *_: token.set(), cancelled=token.is_set)
    result = bench.workbench.verify(task_id, watch)
    assert result.verified is False
    assert (result.runs[-1].check_id, result.runs[-1].verdict) == ("long", Verdict.KILLED)


# --- from other processes


def in_background(act: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=act)
    thread.start()
    return thread


def test_check_stop_ends_what_another_process_runs(bench: Bench) -> None:
    task_id = bench.task()
    runner = Command(bench.home).start("check", "run", task_id, "after", "--json")
    wait_until(began(bench, task_id))

    stopped = Command(bench.home).ok("check", "stop", task_id)
    stdout, stderr = runner.communicate(timeout=DEADLINE_S)

    assert stopped == {"task_id": task_id, "stopped": [{"check_id": "long", "verdict": "killed"}]}
    assert (runner.returncode, json.loads(stdout)["verdict"]) == (1, "killed"), stderr
    assert not (bench.worktree(task_id) / "after").exists()
    assert Command(bench.home).ok("check", "stop", task_id) == {"task_id": task_id, "stopped": []}
    assert bench.workbench.run_checks(task_id, ["quick"])[0].verdict is Verdict.PASSED


def test_closing_a_task_stops_its_checks_and_clean_rooms_first(bench: Bench) -> None:
    task_id, other, runs = bench.task(), bench.open(), list[CheckRun]()
    in_task, in_room = threading.Event(), threading.Event()
    told = [Watch(follow=lambda *_: in_task.set()), Watch(follow=lambda *_: in_room.set())]
    threads = [
        in_background(lambda: runs.extend(bench.workbench.run_checks(task_id, ["long"], told[0]))),
        in_background(lambda: runs.extend(other.verify(task_id, told[1]).runs)),
    ]
    assert in_task.wait(DEADLINE_S)
    assert in_room.wait(DEADLINE_S)

    closed = bench.workbench.close_task(task_id, delete_worktree=True, discard=True)

    for thread in threads:
        thread.join(DEADLINE_S)
    other.__exit__(None, None, None)
    assert closed.status is TaskStatus.CLOSED
    assert sorted((r.clean_room, r.check_id, r.verdict.value) for r in runs if r.check_id == "long") == [
        (False, "long", "killed"),
        (True, "long", "killed"),
    ]
    assert all("it was stopped because its task was closed" in r.notes for r in runs if r.check_id == "long")
    assert set(bench.records(task_id)) == {f"{r.run_id}.json" for r in runs}


def test_the_guest_of_a_dead_process_is_ended_by_check_stop(bench: Bench) -> None:
    task_id = bench.task()
    runner = Command(bench.home).start("check", "run", task_id, "long")
    wait_until(began(bench, task_id))
    runner.kill()
    runner.communicate(timeout=DEADLINE_S)

    found = bench.workbench.stop_checks(task_id)

    assert [(c.check_id, c.verdict) for c in found.stopped] == [("long", None)]
    assert bench.workbench.stop_checks(task_id).stopped == ()
    for room in (bench.home / "repositories" / "rooms").iterdir():
        shutil.rmtree(room)  # its report folder: what `gc` is for


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_command_records_the_run_and_exits_130(bench: Bench, number: signal.Signals) -> None:
    task_id = bench.task()
    runner = Command(bench.home).start("check", "run", task_id, "after")
    wait_until(began(bench, task_id))
    runner.send_signal(number)
    _, stderr = runner.communicate(timeout=DEADLINE_S)

    assert runner.returncode == 130, stderr
    assert "Traceback" not in stderr
    (record,) = bench.records(task_id)
    run = json.loads((bench.logs(task_id) / record).read_text())
    assert (run["check_id"], run["verdict"], run["stdout_tail"]) == ("long", "killed", "started\n")
    assert [entry.result for entry in bench.workbench.log(task_id) if entry.operation == "check"] == ["interrupted"]


def test_an_interrupted_verify_records_the_run_and_leaves_no_room(bench: Bench) -> None:
    task_id = bench.task()
    runner = Command(bench.home).start("verify", task_id, "--follow")
    says(runner, "started")
    runner.send_signal(signal.SIGINT)
    runner.communicate(timeout=DEADLINE_S)
    assert runner.returncode == 130
    records = [json.loads(path.read_text()) for path in bench.logs(task_id).glob("*.json")]
    assert [(run["clean_room"], run["verdict"]) for run in records if run["check_id"] == "long"] == [(True, "killed")]


def says(process: subprocess.Popen[str], line: str) -> None:
    """Read what a command says until it says this."""
    assert process.stderr is not None
    assert any(said.strip() == line for said in process.stderr), "it ended without a word of it"


# --- in line


@pytest.fixture
def narrow(tmp_path: Path, bench: Bench) -> Bench:
    """The bench, where one check runs at a time."""
    (bench.home / "config.toml").write_text("[container]\nparallel = 1\n")
    bench.workbench.__exit__(None, None, None)
    bench.workbench = bench.open()
    return bench


def test_a_check_that_waits_in_line_is_cancelled_and_starts_nothing(narrow: Bench) -> None:
    first, second, token = narrow.task(), narrow.task(), Cancellation()
    runs: list[CheckRun] = []
    thread = in_background(lambda: runs.extend(narrow.workbench.run_checks(first, ["long"])))
    wait_until(began(narrow, first))
    places: list[int] = []

    def queued(place: int) -> None:
        places.append(place)
        token.set()

    waited = narrow.workbench.run_checks(second, ["long"], Watch(cancelled=token.is_set, queued=queued))
    narrow.workbench.stop_checks(first)
    thread.join(DEADLINE_S)

    assert places == [1]
    assert [(r.verdict, r.exit_code, r.wall_time_s) for r in waited] == [(Verdict.KILLED, None, 0.0)]
    assert not began(narrow, second)()
    assert [r.verdict for r in runs] == [Verdict.KILLED]


def test_a_check_that_waits_in_line_is_stopped_by_another_process(narrow: Bench) -> None:
    first, second = narrow.task(), narrow.task()
    thread = in_background(lambda: narrow.workbench.run_checks(first, ["long"]))
    wait_until(began(narrow, first))
    runner = Command(narrow.home).start("check", "run", second, "quick", "--json")
    line = RunQueue(narrow.home / "repositories" / "turns", 1)
    wait_until(lambda: [ticket.owner for ticket in waiting_in_order(line.list_tickets())] == [second])

    stopped = Command(narrow.home).ok("check", "stop", second)["stopped"]

    stdout, stderr = runner.communicate(timeout=DEADLINE_S)
    assert stopped == [{"check_id": "quick", "verdict": "killed"}]
    assert (runner.returncode, json.loads(stdout)["exit_code"]) == (1, None), stderr
    assert [ticket.owner for ticket in line.list_tickets()] == [first]
    narrow.workbench.stop_checks(first)
    thread.join(DEADLINE_S)


def test_the_command_says_its_place_in_line_and_killing_it_frees_the_place(narrow: Bench) -> None:
    """Three commands for one turn: the second in line dies, and the third one runs when the first has ended."""
    tasks = [narrow.task() for _ in range(3)]
    runner = Command(narrow.home).start("check", "run", tasks[0], "long")
    wait_until(began(narrow, tasks[0]))
    line = RunQueue(narrow.home / "repositories" / "turns", 1)
    waiters = []
    for place, task_id in enumerate(tasks[1:], 2):
        waiters.append(Command(narrow.home).start("check", "run", task_id, "quick"))
        wait_until(lambda place=place: len(line.list_tickets()) == place)  # type: ignore[misc]  # binds the loop's value
    says(waiters[1], "waiting: 2nd in line")
    waiters[0].kill()
    waiters[0].communicate(timeout=DEADLINE_S)
    assert [ticket.owner for ticket in waiting_in_order(line.list_tickets())] == [tasks[2]]

    Command(narrow.home).ok("check", "stop", tasks[0])
    stdout, _ = waiters[1].communicate(timeout=DEADLINE_S)
    runner.communicate(timeout=DEADLINE_S)

    assert (waiters[1].returncode, runner.returncode) == (0, 1), stdout
    assert [c.check_id for c in narrow.workbench.stop_checks(tasks[1]).stopped] == ["quick"]
    for room in (narrow.home / "repositories" / "rooms").iterdir():
        shutil.rmtree(room)  # the report folder of the command that was killed: what `gc` is for


def test_ctrl_c_while_waiting_in_line_leaves_the_line(narrow: Bench) -> None:
    first, second = narrow.task(), narrow.task()
    thread = in_background(lambda: narrow.workbench.run_checks(first, ["long"]))
    wait_until(began(narrow, first))
    runner = Command(narrow.home).start("check", "run", second, "quick")
    line = RunQueue(narrow.home / "repositories" / "turns", 1)
    wait_until(lambda: [ticket.owner for ticket in waiting_in_order(line.list_tickets())] == [second])
    runner.send_signal(signal.SIGINT)
    _, stderr = runner.communicate(timeout=DEADLINE_S)
    assert runner.returncode == 130, stderr
    assert [ticket.owner for ticket in line.list_tickets()] == [first]
    narrow.workbench.stop_checks(first)
    thread.join(DEADLINE_S)
    assert len(narrow.records(second)) == 1


def test_l24_a_storm_of_checks_from_threads_and_processes_passes_in_turns(bench: Bench) -> None:
    """What is left of them is asked by `nothing_runs`. The order is proven in tests/unit/store/test_run_queue.py.

    Four times as many as run at once, up to 32; a quarter of them in processes.
    """
    at_once = 2 * (os.cpu_count() or 1)
    tasks = [bench.task() for _ in range(min(32, 4 * at_once))]
    threads, processes = tasks[len(tasks) // 4 :], tasks[: len(tasks) // 4]
    command = Command(bench.home)
    line, at_work = RunQueue(bench.home / "repositories" / "turns", 1), [0]
    line.folder.mkdir(exist_ok=True)
    with ThreadPoolExecutor(len(tasks)) as pool:
        commands = [pool.submit(command, "check", "run", task_id, "quick") for task_id in processes]
        found = [pool.submit(bench.workbench.run_checks, task_id, ["quick"]) for task_id in threads]
        running: list[Future[Any]] = [*commands, *found]
        while wait(running, timeout=0.05).not_done:
            at_work.append(sum(ticket.running for ticket in line.list_tickets()))
    assert [run.verdict for future in found for run in future.result()] == [Verdict.PASSED] * len(threads)
    assert max(at_work) <= at_once
    for ended in (future.result() for future in commands):
        assert ended.code == 0, ended.stderr
