"""What fails newly runs again: what counts as chance then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sandbox.checks.comparison import CheckSide, compare_check
from sandbox.git import objects
from sandbox.models import Check, TestChangeKind, TestOutcome, TestResult, Verdict
from sandbox.models.checks import CheckParameter
from sandbox.workbench.checks import repetition
from sandbox.workbench.checks.repetition import CheckPair, RepeatedTree
from tests.unit.desk import Desk
from tests.unit.receipt_samples import made_run
from tests.unit.workbench.checks.scripted_rooms import BAD, GOOD, Tests, select_a
from tests.unit.workbench.checks.test_confirmed_base import Story, kind

PASSED, FAILED = TestOutcome.PASSED, TestOutcome.FAILED
ALONE: Tests = {"a": PASSED}


@pytest.mark.parametrize(
    ("whole", "expected", "is_new"),
    [(BAD, TestChangeKind.NEWLY_FAILING, True), (GOOD, TestChangeKind.FLAKY, False)],
    ids=["fails each time", "control: it passes once"],
)
def test_what_passes_without_the_other_tests_only_is_no_chance(
    whole: Tests, expected: TestChangeKind, is_new: bool, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check as it is asked fails each time. Its flakiness is shown all the same."""
    select_a(monkeypatch)
    story = Story(desk, monkeypatch, [GOOD], [BAD, ALONE, ALONE, whole])
    found = story.verify()
    assert (found.no_new_failures, kind(found)) == (not is_new, expected)
    assert [(one.test, one.ran, one.failed) for one in found.flaky] == [("a", 4, 2 if is_new else 1)]
    assert [bool(run.arguments) for run in story.rooms.ran[story.own]] == [False, True, True, False]


def test_what_fails_alone_too_needs_no_run_of_the_whole_check(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another test of the part, which passes, is no reason for one."""
    select_a(monkeypatch)
    story = Story(desk, monkeypatch, [GOOD], [BAD, BAD, BAD, GOOD])
    assert kind(story.verify()) is TestChangeKind.NEWLY_FAILING
    assert story.count()[1] == 3


def select(results: list[TestResult], monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...] | None:
    """The files that run again for what fails newly. Every file exists."""
    monkeypatch.setattr(objects, "find_blob", lambda *_: "x")
    parameter = CheckParameter(name="files", pattern=r"[\w./-]+", many=True, selects="files")
    check = Check(id="test", label="t", argv=("run", "<files>"), parameters=(parameter,))
    profile: Any = SimpleNamespace(checks=(check,))
    source: Any = SimpleNamespace(git=None, tree="a" * 40)
    tree = RepeatedTree(profile, source, "task-1")
    before = CheckSide(made_run("test"), [TestResult(test=name, outcome=PASSED) for name in {r.test for r in results}])
    pair = CheckPair("test", before, CheckSide(made_run("test", Verdict.FAILED), results))
    return repetition._choose_arguments(tree, pair, compare_check("test", before, pair.after))


def named(path: str, outcome: TestOutcome) -> TestResult:
    return TestResult(test="suite::works", outcome=outcome, path=path, line=1)


def test_each_file_with_a_failing_test_of_one_name_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one that passes alone would stand for one that is broken."""
    results = [named("real.test.js", FAILED), named("decoy.test.js", FAILED), named("good.test.js", PASSED)]
    assert select(results, monkeypatch) == ("real.test.js", "decoy.test.js")


@pytest.mark.parametrize(("number", "is_part"), [(50, True), (51, False)])
def test_more_than_fifty_failing_tests_of_one_name_run_with_the_whole_check(
    number: int, is_part: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = [named(f"t{n}.test.js", FAILED) for n in range(number)]
    assert bool(select(results, monkeypatch)) is is_part
