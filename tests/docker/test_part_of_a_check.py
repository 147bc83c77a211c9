"""Run a part of a check: in a task, by what the profile allows; never in a clean room. Real engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.command import Command
from sandbox.files.mount_points import unmount_below
from sandbox.models import Verdict
from tests.docker.test_verify import Bench

PROFILE = """
label = "bench"
image = "base"
priority = 99
[[detect.any]]
file = "bench"
[[check]]
id = "test"
label = "prints its tests"
argv = ["sh", "-c", 'echo "${@:-all}"; test "$1" != bad', "run", "<tests>"]
[check.results]
failed = '^(bad)$'
passed = '^(.+)$'
[[check.parameter]]
name = "tests"
pattern = '[^-].*'
many = true
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, {})
    (made.home / "profiles" / "bench.toml").write_text(PROFILE.replace("${@:-all}", "$*"))
    made.close()
    made.workbench = made.open()
    yield made
    made.close()
    unmount_below(tmp_path)


def test_a_part_runs_in_the_task_and_the_whole_in_a_clean_room(bench: Bench) -> None:
    (part,) = bench.workbench.run_checks(bench.task_id, ["test"], arguments=["a b", "c"])
    assert (part.stdout_tail, part.arguments) == ("a b c\n", ("a b", "c"))
    (whole,) = bench.workbench.run_checks(bench.task_id, ["test"])
    assert (whole.stdout_tail, whole.arguments) == ("\n", ())
    (failed,) = bench.workbench.run_checks(bench.task_id, ["test"], arguments=["bad"])
    assert failed.verdict is Verdict.FAILED
    assert [test.test for test in failed.failures] == ["bad"]
    assert [r.test for r in bench.workbench.test_results(failed.run_id).results] == ["bad"]
    assert (part.report.tests, part.report.failures) == (1, 0) if part.report else False
    verified = bench.workbench.verify(bench.task_id)
    assert [run.stdout_tail for run in verified.runs] == ["\n"]
    assert verified.verified
    entries = [entry for entry in bench.workbench.log(bench.task_id) if entry.operation == "check"]
    assert len(entries) == 3


def test_the_command_line_takes_them_after_two_dashes(bench: Bench) -> None:
    sandbox = Command(bench.home)
    part = sandbox("--json", "check", "run", bench.task_id, "test", "--", "x::y", "z")
    assert json.loads(part.stdout)["stdout_tail"] == "x::y z\n"
    listed = sandbox("check", "list", bench.task_id)
    assert "[TESTS]..." in listed.stdout
    refused = sandbox("check", "run", bench.task_id, "test", "--", "--evil")
    assert refused.code == 2
    assert "'--evil' is none of its tests" in refused.stderr
    detached = sandbox("--json", "check", "run", bench.task_id, "test", "--detach", "--", "later")
    waited = sandbox.ok("check", "wait", json.loads(detached.stdout)["run_id"])
    assert waited["runs"][0]["arguments"] == ["later"]
