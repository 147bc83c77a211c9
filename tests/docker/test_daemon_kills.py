"""Checks of agents in a daemon of which a process is killed, with a real engine."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from devtools.daemon import RunningDaemon, serving
from devtools.waiting import wait_until
from sandbox.engine.connection import DockerEngine
from sandbox.models import Verdict
from tests.docker.bench import DEADLINE_S, GATED, Bench, assert_nothing_runs, open_gate, opened_bench

pytestmark = pytest.mark.xdist_group("daemon")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, base_image: str, engine: DockerEngine) -> Iterator[Bench]:
    with opened_bench(tmp_path_factory.mktemp("killed")) as found:
        found.add_checks(GATED)
        yield found
        assert_nothing_runs(found, engine)


def start_gated(daemon: RunningDaemon, task: str) -> str:
    """A run of an agent in the HTTP process, which goes on until `open_gate`."""
    run_id = str(daemon.call("space_repo_run_check", task_id=task, check_id="gated", wait_s=0)["run_id"])
    wait_until(lambda: "started" in daemon.call("space_repo_wait_run", run_id=run_id, wait_s=0).get("last_lines", ()))
    return run_id


def test_a_check_of_an_agent_outlives_a_killed_daemon_and_the_next_one_answers_for_it(bench: Bench) -> None:
    """The process that serves HTTP is told by the kernel that its parent has died."""
    task = bench.task()
    with serving(bench.home) as killed:
        run_id = start_gated(killed, task)
        killed.process.kill()
        killed.process.wait()
    with serving(bench.home) as running:
        assert running.call("space_repo_wait_run", run_id=run_id, wait_s=0)["state"] == "running"
        open_gate(bench, task)
        assert running.call("space_repo_wait_run", run_id=run_id, wait_s=DEADLINE_S)["state"] == "finished"
    assert [run.verdict for run in bench.workbench.wait_run(run_id, DEADLINE_S).runs] == [Verdict.PASSED]


def test_the_killed_http_process_is_replaced_and_its_check_has_no_result(bench: Bench) -> None:
    task = bench.task()
    with serving(bench.home) as running:
        run_id = start_gated(running, task)
        (server,) = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text().split()
        os.kill(int(server), signal.SIGKILL)
        wait_until(lambda: is_answered(running))
        lost = running.call("space_repo_wait_run", run_id=run_id, wait_s=0)["error"]
        assert (lost["code"], "was killed" in lost["brief"]) == ("not_found", True)
        again = running.call("space_repo_run_check", task_id=task, check_id="quick", wait_s=DEADLINE_S)
        assert again["verdict"] == "passed"


def is_answered(daemon: RunningDaemon) -> bool:
    try:
        return "repositories" in daemon.call("space_repo_list")
    except httpx2.TransportError:
        return False
