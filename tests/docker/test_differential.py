"""A verdict against the base: what is new, on real runs of both trees. Real engine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from devtools.command import Command
from sandbox.agent import run_results
from sandbox.agent.outputs import VerifyResult
from sandbox.checks import execute
from sandbox.checks.cancellation import Cancellation
from sandbox.errors import ErrorCode
from sandbox.files.mount_points import unmount_below
from sandbox.gate import DeliveryStep
from sandbox.models import Task, Verdict, Verification
from sandbox.models.words import TestChangeKind
from sandbox.store.home import Home
from sandbox.store.verdicts import save_verdict
from sandbox.workbench import VerifyOptions, Workbench
from sandbox.workbench.checks import clean_rooms
from sandbox.workbench.checks.callbacks import Watch
from sandbox.workbench.checks.gate import TreeGate
from sandbox.workbench.repositories.commit_facts import TreeSource
from tests.unit.conftest import initialised, refused

PROFILE = """
label = "bench"
image = "base"
priority = 99
[[detect.any]]
file = "tests.txt"
[[check]]
id = "test"
label = "its tests"
argv = ["sh", "run.sh", "<tests>"]
timeout_s = 300
limits = { memory_bytes = 134217728, cpus = 1.0, pids = 64 }
[[check.parameter]]
name = "tests"
pattern = '[a-z]+'
selects = "cargo"
[[check.artifact]]
path = "lcov.info"
coverage = "lcov"
"""
RUN = """\
echo '<testsuite>' >/report/junit.xml
status=0
while read -r name outcome; do
    [ -z "$1" ] || [ "$1" = "$name" ] || continue
    [ "$outcome" != together ] || { [ -n "$1" ] && outcome=ok; } # fails only among the others
    [ "$outcome" = ok ] || status=1
    [ "$outcome" = ok ] && body= || body="<failure message='$name is $outcome'/>"
    echo "<testcase name='$name'>$body</testcase>" >>/report/junit.xml
done <tests.txt
echo '</testsuite>' >>/report/junit.xml
[ -n "$1" ] || printf 'LF:%d\\nLH:%d\\n' "$(grep -c . tests.txt)" "$(grep -c ok tests.txt)" >lcov.info
exit $status
"""
RED = b"one bad\ntwo bad\nthree ok\nfour ok\n"


class Bench:
    """A repository whose main branch is red: two of its tests fail."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        (self.home / "profiles").mkdir(parents=True)
        (self.home / "profiles" / "bench.toml").write_text(PROFILE)
        (self.home / "config.toml").write_text('[gate]\nrequire = "push"\naccept = "no-new-failures"\n')
        upstream = initialised(root / "upstream")
        upstream.write("run.sh", RUN.encode())
        upstream.write("tests.txt", RED)
        upstream.commit()
        self.workbench = Workbench(self.home, environ=dict(os.environ), allow_file=True)
        self.repo_id = self.workbench.clone(str(upstream.root)).repository.id

    def task(self, content: bytes, **files: bytes) -> Task:
        """A task whose one commit changes the tests."""
        task = self.workbench.create_task(self.repo_id)
        for path, text in {"tests.txt": content, **files}.items():
            self.workbench.write_file(task.id, path, text, self.workbench.base_hash(task.id, path))
        self.workbench.commit(task.id, "a change")
        return self.workbench.task(task.id)

    def verify(self, task: Task, against: str = "base") -> Verification:
        return self.workbench.verify(task.id, None, VerifyOptions(against=against))

    def gate(self, task: Task) -> TreeGate:
        return TreeGate(self.workbench._services, task)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    root = tmp_path_factory.mktemp("differential")
    made = Bench(root)
    yield made
    made.workbench.__exit__(None, None, None)
    unmount_below(root)


def changed(found: Verification) -> dict[str, TestChangeKind]:
    assert found.comparison is not None
    return {change.test: change.change for change in found.comparison.checks[0].changes}


def test_work_on_a_red_main_branch(bench: Bench) -> None:
    """A task that fixes one of two red tests and breaks none has no new failures, and the gate opens; one that breaks
    a third has, by name, and the gate stays closed.
    """
    task = bench.task(RED.replace(b"one bad", b"one ok"))
    with refused(ErrorCode.GATE_CLOSED) as caught:  # control: not compared yet
        bench.gate(task).require_open(DeliveryStep.PUSH)
    assert "--against base" in (caught.value.hint or "")
    found = bench.verify(task)
    assert (found.verified, found.no_new_failures) == (False, True)
    assert changed(found) == {"one": TestChangeKind.NEWLY_PASSING, "two": TestChangeKind.STILL_FAILING}
    bench.gate(task).require_open(DeliveryStep.PUSH)
    assert found.comparison is not None
    assert (coverage := found.comparison.checks[0].coverage) is not None
    assert coverage.describe() == "50.00 % -> 75.00 % (+25.00)"

    broken = bench.task(RED.replace(b"one bad", b"one ok").replace(b"three ok", b"three bad"))
    found = bench.verify(broken)
    assert (found.verified, found.no_new_failures) == (False, False)
    assert changed(found)["three"] is TestChangeKind.NEWLY_FAILING
    with refused(ErrorCode.GATE_CLOSED) as caught:
        bench.gate(broken).require_open(DeliveryStep.PUSH)
    assert "test: 1 test fails newly" in caught.value.details
    again = [run for run in bench.workbench.runs(broken.id) if run.arguments]
    assert [run.arguments for run in again] == [("three",), ("three",)], "what fails newly runs again, alone"


def test_what_fails_among_the_others_only_is_flaky_and_a_new_failure(bench: Bench) -> None:
    """It passes alone, so the whole check runs once more, and fails again. Its rate is kept and always shown."""
    task = bench.task(RED.replace(b"three ok", b"three together"))
    found = bench.verify(task)
    assert changed(found)["three"] is TestChangeKind.NEWLY_FAILING
    assert not found.no_new_failures
    assert [(one.test, one.ran, one.failed) for one in found.flaky] == [("three", 4, 2)]
    assert "without them" in found.flaky[0].remark
    assert [(one.test, one.rate) for one in bench.workbench.flaky_tests(bench.repo_id)] == [("three", 0.5)]
    sandbox = Command(bench.home)
    shown = sandbox("verify", task.id, "--against", "base")
    assert shown.code == 1
    assert "newly failing three" in shown.stdout
    assert "failed 2 of 4 runs on this tree" in shown.stdout
    assert sandbox.ok("flaky", "list", bench.repo_id)["flaky"][0]["ran"] == 8
    assert sandbox.ok("flaky", "forget", bench.repo_id, "three")["forgotten"][0]["test"] == "three"
    assert bench.workbench.flaky_tests(bench.repo_id) == ()


def test_a_comparison_that_was_stopped_opens_no_gate(bench: Bench) -> None:
    """Both sides end alike, as `killed`. Control: the same request, not stopped, opens it."""
    task = bench.task(RED.replace(b"two bad", b"two ok"))
    stopped = Cancellation()
    watch = Watch(starts=lambda *_: stopped.set(), cancelled=stopped.is_set)
    found = bench.workbench.verify(task.id, watch, VerifyOptions(against="base", cache=False))
    assert [run.verdict.value for run in found.runs] == ["killed"], "void"
    assert found.no_new_failures is False
    with refused(ErrorCode.GATE_CLOSED):
        bench.gate(task).require_open(DeliveryStep.PUSH)
    assert bench.verify(task).no_new_failures
    bench.gate(task).require_open(DeliveryStep.PUSH)


def test_a_later_run_that_did_not_pass_ends_a_comparison(bench: Bench) -> None:
    """A check that passed, and later fails by chance or does not end. Control: the gate was open before."""
    task = bench.task(RED.replace(b"two bad", b"two ok").replace(b"one bad", b"one ok"))
    assert bench.verify(task).verified
    gate = bench.gate(task)
    gate.require_open(DeliveryStep.PUSH)
    (binding,) = gate.verdicts.bindings.values()
    (passed,) = gate.verdicts.runs.values()
    assert passed is not None
    later = {"run_id": f"run-{'f' * 32}", "verdict": Verdict.FAILED, "exit_code": 1, "cached": False}
    save_verdict(Home(bench.home), binding, passed.model_copy(update=later))
    with refused(ErrorCode.GATE_CLOSED):
        bench.gate(task).require_open(DeliveryStep.PUSH)
    save_verdict(Home(bench.home), binding, passed.model_copy(update={**later, "verdict": Verdict.TIMED_OUT}))
    with refused(ErrorCode.GATE_CLOSED):
        bench.gate(task).require_open(DeliveryStep.PUSH)


def test_what_cannot_be_compared_or_shuffled_is_refused_before_anything_runs(bench: Bench) -> None:
    task = bench.workbench.create_task(bench.repo_id)
    for against in ("no-such-branch", "1234567", "task-00000000-0000-0000-0000-000000000000"):
        with refused(ErrorCode.NOT_FOUND):
            bench.verify(task, against)
    with refused(ErrorCode.INVALID_INPUT) as caught:
        bench.workbench.verify(task.id, None, VerifyOptions(shuffle=7))
    assert "[check.shuffle]" in (caught.value.hint or "")
    for options in ({"repeat": 0}, {"repeat": 101}, {"shuffle": -1}):
        with refused(ErrorCode.INVALID_INPUT):
            VerifyOptions(**options)  # type: ignore[arg-type]  # by name
    assert bench.workbench.runs(task.id) == ()


def test_rounds_find_nothing_where_nothing_is_flaky(bench: Bench) -> None:
    task = bench.task(b"one ok\n")
    found = bench.workbench.verify(task.id, None, VerifyOptions(repeat=2))
    assert (found.verified, found.flaky) == (True, ())
    assert [run.verdict.value for run in bench.workbench.runs(task.id)] == ["passed", "passed"]


def test_what_is_no_evidence_closes_a_gate_and_opens_none(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a round after one that did not pass. Control: the gate is open, and the first run has a receipt."""
    task = bench.task(b"one ok\ntwo ok\nfive ok\n")
    (first,) = bench.verify(task).runs
    assert bench.workbench.export_receipt(first.run_id).receipt.passed
    services, profile = bench.workbench._services, bench.gate(task).profile
    bench.gate(task).require_open(DeliveryStep.PUSH)
    git = services.repositories.open(task.repo_id)[1]
    tree = bench.gate(task).tree
    source = TreeSource(task.repo_id, git, tree, task.head_commit)
    request = clean_rooms.VerifyRequest(
        profile, tuple(bench.gate(task).verdicts.bindings[name].check for name in ("test",)), task.id, keep=False
    )
    judge, verdicts = execute.judge, iter([Verdict.FAILED, Verdict.PASSED])
    monkeypatch.setattr(execute, "judge", lambda ending: judge(replace(ending, exit_code=1))
                        if next(verdicts) is Verdict.FAILED else judge(ending))  # fmt: skip
    for expected in (Verdict.FAILED, Verdict.PASSED):
        (run,) = clean_rooms.run_in_rooms(services, source, request, Watch(), VerifyOptions(cache=False))
        assert run.verdict is expected, "void"
        with refused(ErrorCode.GATE_CLOSED):
            bench.gate(task).require_open(DeliveryStep.PUSH)
    with refused(ErrorCode.NOT_FOUND):
        bench.workbench.export_receipt(run.run_id)


def test_an_agent_gets_what_fails_newly_before_any_output(bench: Bench) -> None:
    task = bench.task(RED.replace(b"four ok", b"four bad"))
    found = run_results.build_answer(
        bench.workbench.wait_run(bench.workbench.start_verify(task.id, None, VerifyOptions(against="base")).run_id),
        VerifyResult,
    )
    assert found.comparison is not None
    assert found.no_new_failures is False
    assert found.comparison[0].new_failures == ("1 test fails newly",)
    assert found.comparison[0].changes is not None
    assert (found.comparison[0].changes[0].test, found.comparison[0].changes[0].failed) == ("four", 3)
