"""The daemon with a real engine: checks through it, a new program while one runs, usage over time."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Iterator

import pytest

from devtools.command import SANDBOX, Command
from devtools.daemon import RunningDaemon, ask, serving
from devtools.waiting import wait_until
from sandbox.engine.connection import DockerEngine
from sandbox.errors import ErrorCode
from sandbox.models import Verdict
from tests.docker.bench import DEADLINE_S, GATED, Bench, assert_nothing_runs, open_gate, opened_bench
from tests.unit.conftest import refused

pytestmark = pytest.mark.xdist_group("daemon")  # one for all of them


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, base_image: str, engine: DockerEngine) -> Iterator[Bench]:
    with opened_bench(tmp_path_factory.mktemp("serve")) as found:
        found.add_checks(GATED)
        yield found
        assert_nothing_runs(found, engine)


@pytest.fixture(scope="module")
def daemon(bench: Bench) -> Iterator[RunningDaemon]:
    with serving(bench.home) as running:
        yield running


def test_a_check_runs_through_the_daemon_as_without_it(bench: Bench, daemon: RunningDaemon) -> None:
    task, sandbox = bench.task(), Command(daemon.home)
    there = sandbox("check", "run", task, "quick", "--json")
    here = sandbox("check", "run", task, "quick", "--json", "--no-daemon")
    assert (there.code, here.code) == (0, 0), there.stderr + here.stderr
    changing = {"run_id", "started_at", "wall_time_s", "usage"}
    assert {**there.json, **dict.fromkeys(changing)} == {**here.json, **dict.fromkeys(changing)}


@pytest.mark.parametrize("how", [(), ("--no-daemon",)], ids=["daemon", "alone"])
def test_output_is_shown_while_a_check_runs(bench: Bench, daemon: RunningDaemon, how: tuple[str, ...]) -> None:
    """The check goes on until the test has seen its first line."""
    task = bench.task()
    assert ask(daemon.home, "task", "list") == b"R", "commands run in the daemon"
    command = [*SANDBOX, "--home", str(daemon.home), "check", "run", task, "gated", "--follow", *how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
        try:
            assert running.stdout is not None
            seen = read_until(running.stdout.fileno(), b"started")
            assert b"ended" not in seen
            assert running.poll() is None
            open_gate(bench, task)
            read_until(running.stdout.fileno(), b"ended")
            assert running.wait(DEADLINE_S) == 0
        finally:
            running.kill()


def read_until(fd: int, text: bytes) -> bytes:
    seen = b""
    while text not in seen:
        assert select.select([fd], [], [], DEADLINE_S)[0], seen
        chunk = os.read(fd, 4096)
        assert chunk, seen
        seen += chunk
    return seen


def test_a_check_outlives_the_program_that_started_it(bench: Bench, daemon: RunningDaemon) -> None:
    task = bench.task()
    answer = daemon.call("space_repo_run_check", task_id=task, check_id="long", wait_s=0)
    run_id = answer["run_id"]
    wait_until(lambda: "started" in daemon.call("space_repo_wait_run", run_id=run_id, wait_s=0).get("last_lines", ()))
    daemon.replace_program()
    still = daemon.call("space_repo_wait_run", run_id=run_id, wait_s=1)
    assert still["state"] == "running"
    assert daemon.call("space_repo_stop_run", run_id=run_id)["state"] == "finished"
    ended = bench.workbench.wait_run(run_id, DEADLINE_S)
    assert [run.verdict for run in ended.runs] == [Verdict.KILLED], "the old program recorded it"


def test_a_run_has_its_usage_over_time_with_its_limits(bench: Bench) -> None:
    task = bench.task()
    [run] = bench.workbench.run_checks(task, ["quick"])
    found = bench.workbench.usage(run.run_id)
    assert (found.check_id, found.limits) == ("quick", run.usage.limits)
    assert 2 <= len(found.samples) <= 4 * run.wall_time_s + 3
    assert found.samples[-1].at_s <= run.wall_time_s + 1
    assert found.samples[0].cpu_time_s == 0
    assert any(sample.memory_bytes for sample in found.samples)
    assert any(sample.pids for sample in found.samples)
    assert found.samples[-1].disk_used_bytes == run.usage.disk_used_bytes is not None
    drawn = Command(bench.home)("check", "usage", task)
    assert drawn.code == 0
    assert [line.split()[0] for line in drawn.stdout.splitlines()] == [
        "quick:",
        "cpu",
        "memory",
        "processes",
        "disk",
        "written",
    ]
    with refused(ErrorCode.NOT_FOUND):
        bench.workbench.usage(f"run-{'0' * 32}")
