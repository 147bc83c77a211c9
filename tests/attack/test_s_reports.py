"""THREATS S: reports that lie about tests, to the comparison of trees, to readers and to our memory.

The verdict stays the exit status. A report is the guest's own word, and here it lies in each way that a comparison
could believe.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devtools.command import Command
from sandbox.checks.comparison import CheckSide, compare_check
from sandbox.errors import ErrorCode
from sandbox.files.mount_points import unmount_below
from sandbox.forges.comparison_table import describe_comparison
from sandbox.gate import DeliveryStep
from sandbox.models import TestOutcome, TestResult, TreeComparison, Verdict
from tests.attack.arena import Arena, refused, variants
from tests.docker.test_differential import RED, RUN, Bench
from tests.unit.store.test_verdicts import made

pytestmark = [pytest.mark.must, pytest.mark.one_git, pytest.mark.xdist_group("reports")]

HIDES = "sed -i '/three/d' /report/junit.xml\nexit $status\n"
CLEAN = "echo '<testsuite><testcase name=\"all is well\"/></testsuite>' >/report/junit.xml\n"
MILLION = 'awk \'BEGIN { print "<testsuite>"; for (i = 0; i < 300000; i++) print "<a/>" }\' >/report/junit.xml\n'
LIES = {"hides a failing test": HIDES, "only invented tests": CLEAN, "too many to read": MILLION}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    root = tmp_path_factory.mktemp("lies")
    made_ = Bench(root)
    yield made_
    made_.workbench.__exit__(None, None, None)
    unmount_below(root)


@pytest.mark.parametrize("lie", variants(LIES, "hides a failing test", "too many to read"))
def test_s105_a_report_that_hides_a_failing_test_opens_no_gate(bench: Bench, lie: str) -> None:
    """The task breaks a test and lies about it. Control: by the names of failing tests alone there is nothing new."""
    script = RUN.replace("exit $status", f"{LIES[lie]}exit $status").encode()
    task = bench.task(RED.replace(b"three ok", b"three bad"), **{"run.sh": script})
    found = bench.verify(task)
    assert found.comparison is not None
    reported = {failure.test for failure in found.runs[0].failures}
    assert reported <= {"one", "two"}, "void: the report names the test that it was to hide"
    assert found.no_new_failures is False, found.comparison
    with refused(ErrorCode.GATE_CLOSED):
        bench.gate(task).require_open(DeliveryStep.PUSH)


def test_s105_a_report_of_success_verifies_nothing(bench: Bench) -> None:
    """Every test passes, says the report, and the exit status says no. Control: the exit status alone is turned."""
    lying = RUN.replace("exit $status", f"{CLEAN}exit 1").encode()
    task = bench.task(b"one ok\ntwo ok\nthree ok\nfour ok\n", **{"run.sh": lying})
    found = bench.verify(task)
    assert found.runs[0].failures == (), "void"
    assert (found.verified, found.no_new_failures) == (False, False)
    honest = bench.task(b"one ok\ntwo ok\nthree ok\nfour ok\n")
    assert bench.verify(honest).verified


def results(*tests: tuple[str, TestOutcome]) -> list[TestResult]:
    return [TestResult(test=name, outcome=outcome) for name, outcome in tests]


def test_s106_a_test_of_the_same_name_hides_no_failure() -> None:
    """Control: a table by name, as a reader of reports would make it, keeps the one that passes."""
    failed, passed = TestOutcome.FAILED, TestOutcome.PASSED
    before = results(("a", passed), ("b", failed))
    after = results(("a", failed), ("a", passed), ("b", failed))
    assert {r.test: r.outcome for r in after} == {"a": passed, "b": failed}, "void: the control sees the failure"
    red = made(Verdict.FAILED, 1)
    assert compare_check("test", CheckSide(red, before), CheckSide(red, after)).reasons == ("1 test fails newly",)
    known = results(("a", failed), ("a", passed))
    worse = results(("a", failed), ("a", failed))
    assert compare_check("test", CheckSide(red, known), CheckSide(red, worse)).reasons == ("1 test fails newly",)


PEAK = """
import sys, pathlib, json
import sandbox.checks.report as report
from sandbox.checks import diagnostics, tap
def read_peak():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
before = read_peak()
{body}
print((read_peak() - before) / 1024)
"""
"""Not the peak of getrusage, which a process inherits from the one that started it."""
BOMBS = {
    "empty.json": "[" + "[]," * 2_500_000 + "[]]",
    "deep.json": "[" * 4_000_000,
    "objects.json": "[" + '{"":[]},' * 1_000_000 + "0]",
    "lines.jsonl": "[]\n" * 2_600_000,
}


def peak_mib(body: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", PEAK.format(body=body)], capture_output=True, text=True, timeout=60, check=True
    )
    return float(done.stdout)


def test_s107_reports_that_unfold_stay_within_the_budget(tmp_path: Path) -> None:
    """Control: one of them, parsed as it is, takes more than all of them do."""
    for name, content in BOMBS.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "tests.tap").write_text("not ok\n" * 1_400_000)
    control = peak_mib(f"json.loads(pathlib.Path({str(tmp_path / 'objects.json')!r}).read_text())")
    assert control > 100, "void"
    honest = {"filename": "a.py", "code": "E1", "location": {"row": 1}, "message": "no"}
    (tmp_path / "a.json").write_text(json.dumps([honest] * 3))
    body = f"found = report.read_report(pathlib.Path({str(tmp_path)!r})); assert found.failures >= 3"
    assert peak_mib(body) < 95


NASTY = "\x1b]0;owned\x07 [click](https://evil.example) @admin | `x` <!-- space-sandbox: made to here -->"


def test_s108_names_of_tests_are_inert_in_the_terminal_and_in_a_pull_request(bench: Bench) -> None:
    """Control: the name is in the report as the guest wrote it."""
    name = "[click](https://evil.example) @admin <!-- space-sandbox: made to here --> ` &#10;# big"
    entity = name.replace("<", "&lt;").replace(">", "&gt;")
    script = RUN.replace("done <tests.txt", f'done <tests.txt\necho "<testcase name=\'{entity.replace("`", "&#96;")}\'>'
                         '<failure message=\'x\'/></testcase>" >>/report/junit.xml')  # fmt: skip
    task = bench.task(RED.replace(b"three ok", b"three bad"), **{"run.sh": script.encode()})
    found = bench.verify(task)
    assert found.comparison is not None
    names = [change.test for change in found.comparison.checks[0].changes]
    assert any("[click](https://evil.example)" in one for one in names), "void"
    text = describe_comparison(found.comparison)
    for line in text.splitlines():
        assert not line.startswith("# ")
        if "click" in line:
            assert line.startswith("- newly failing: `")
            assert "@admin" not in line.split("`")[0]
    shown = Command(bench.home)("verify", task.id, "--against", "base")
    assert not any(line.startswith("# big") for line in shown.stdout.splitlines())


def test_s108_control_characters_do_not_reach_a_terminal() -> None:
    red = made(Verdict.FAILED, 1)
    after = results((NASTY, TestOutcome.FAILED))
    found = compare_check("test", CheckSide(red, []), CheckSide(red, after))
    whole = TreeComparison(against="base", commit="a" * 40, tree="b" * 40, checks=(found,), no_new_failures=False)
    assert "\x1b" in found.changes[0].test, "void: a name from a report is neutralised before"
    assert "\x1b" not in describe_comparison(whole)


LEAVES = (
    "echo '<testsuite><testcase name=\"planted\"/></testsuite>' >/report/x.xml; "
    "(for i in 1 2 3 4 5 6 7 8 9; do cp /report/x.xml /report/y$i.xml; sleep 1; done) & exit 0"
)
SECOND = """
[[check]]
id = "second"
label = "writes no report"
argv = ["sleep", "2"]
requires = ["go"]
timeout_s = 60
limits = { memory_bytes = 134217728, cpus = 1.0, pids = 64 }
"""


def test_s109_a_check_writes_no_report_for_another(guests: Callable[..., Arena]) -> None:
    """What it leaves in /report, and what goes on writing there, is not of the next check: in a task's own container,
    and in a clean room. Control: the report is its own.
    """
    arena = guests("sh", "-c", LEAVES, extra=f"timeout_s = 60\n{SECOND}")
    task_id = arena.workbench.create_task(arena.workbench.clone(str(arena.remote)).repository.id).id
    first, second = arena.workbench.run_checks(task_id, ["second"])
    assert first.report is not None, "void"
    assert second.report is None
    rooms = arena.workbench.verify(task_id).runs
    assert rooms[0].report is not None, "void"
    assert rooms[1].report is None
    assert json.loads(second.model_dump_json())["failures"] == []
