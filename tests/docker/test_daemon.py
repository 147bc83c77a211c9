"""The daemon with a real engine: checks through it, a new program while one runs, usage over time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devtools.command import Command
from devtools.daemon import RunningDaemon, serving
from sandbox.engine.connection import DockerEngine
from sandbox.errors import ErrorCode
from sandbox.models import Verdict
from tests.docker.bench import DEADLINE_S, Bench, assert_nothing_runs, opened_bench, wait_until
from tests.unit.conftest import refused

pytestmark = pytest.mark.xdist_group("daemon")  # one for all of them


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, base_image: str, engine: DockerEngine) -> Iterator[Bench]:
    with opened_bench(tmp_path_factory.mktemp("serve")) as found:
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
    drawn = Command(bench.home)("check", "usage", run.run_id)
    assert drawn.code == 0
    assert [line.split()[0] for line in drawn.stdout.splitlines()] == [
        "quick:",
        "cpu",
        "memory",
        "processes",
        "written",
    ]
    with refused(ErrorCode.NOT_FOUND):
        bench.workbench.usage(f"run-{'0' * 32}")
