"""A check on two trees: what counts as a new failure, and what a guest's report cannot hide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from sandbox.checks.comparison import WHOLE, CheckSide, Reruns, compare_check, find_excused
from sandbox.models import CheckComparison, TestChangeKind, TestOutcome, TestResult, Verdict
from tests.unit.store.test_verdicts import made

OUTCOMES = {"+": TestOutcome.PASSED, "-": TestOutcome.FAILED, "!": TestOutcome.ERROR, "s": TestOutcome.SKIPPED}


def side(tests: str | None, verdict: Verdict | None = None, *, complete: bool = True, exit_code: int = 1) -> CheckSide:
    """`+a -b sc`: a passed, b failed, c was skipped. The verdict follows from them."""
    results = None if tests is None else [TestResult(test=t[1:], outcome=OUTCOMES[t[0]]) for t in tests.split()]
    bad = any(result.outcome in {TestOutcome.FAILED, TestOutcome.ERROR} for result in results or ())
    verdict = verdict or (Verdict.FAILED if bad else Verdict.PASSED)
    return CheckSide(made(verdict, 0 if verdict is Verdict.PASSED else exit_code), results, complete)


def kinds(found: CheckComparison) -> dict[str, str]:
    return {change.test: change.change.value for change in found.changes}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("-a -b +c", "+a -b +c", {"a": "newly_passing", "b": "still_failing"}),
        ("-a -b +c", "+a -b -c", {"c": "newly_failing", "b": "still_failing", "a": "newly_passing"}),
        ("+a +b", "+a -b", {"b": "newly_failing"}),
        ("+a", "+a +b", {"b": "new"}),
        ("+a", "+a !b", {"b": "newly_failing"}),
        ("+a +b", "+a", {"b": "missing"}),
        ("+a -b", "+a sb", {"b": "missing"}),
        ("+a sb", "+a sb", {}),
        ("+a sb", "+a +b", {"b": "new"}),
    ],
)
def test_each_test_is_classified(before: str, after: str, expected: dict[str, str]) -> None:
    found = compare_check("test", side(before), side(after))
    assert kinds(found) == expected
    assert bool(found.reasons) is bool({"newly_failing", "missing"} & set(expected.values()))
    assert found.by == "tests"


def test_tests_of_one_name_are_counted_so_that_one_does_not_hide_another() -> None:
    assert kinds(compare_check("t", side("-a +a"), side("-a -a"))) == {"a": "newly_failing"}
    assert kinds(compare_check("t", side("+a +a"), side("+a"))) == {"a": "missing"}
    assert kinds(compare_check("t", side("+a"), side("-a +a"))) == {"a": "newly_failing"}
    assert kinds(compare_check("t", side("-a -a"), side("-a +a"))) == {"a": "newly_passing"}


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (side("-a +b"), side("+a +b", Verdict.FAILED), "names no test that failed"),
        (side("-a +b"), side("-a +b", complete=False), "not all tests"),
        (side("-a +b", complete=False), side("-a +b"), "not all tests"),
        (side("-a +b"), side(None, Verdict.FAILED), "2 tests are missing"),
        (side("-a +b"), side("-a +b", Verdict.TIMED_OUT), "ended as timed_out"),
        (side("-a +b"), side("-a +b", exit_code=139), "SIGSEGV"),
        (side("-a +b"), CheckSide(), "did not run"),
        (CheckSide(), side(None, Verdict.FAILED), "did not run before"),
        (side(None, Verdict.PASSED), side("-a"), "passed before"),
        (side(None, Verdict.FAILED), side(None, Verdict.OOM_KILLED), "ended as oom_killed"),
        (CheckSide(side("-a").run, None, complete=False), side("-a"), "not all tests"),
        (CheckSide(), CheckSide(), "ran on neither tree"),
        (side(None, Verdict.KILLED), side(None, Verdict.KILLED), "was stopped"),
        (side("-a", Verdict.KILLED), side("-a", Verdict.KILLED), "was stopped"),
        (side(None, Verdict.KILLED), side(None, Verdict.FAILED), "stopped before"),
        (side("-a +b", Verdict.PASSED), side("-a +b"), "passed before"),
    ],
    ids=["unexplained", "cut", "cut-before", "no-report", "timeout", "crash", "not-run", "new-check", "no-tests",
         "worse-end", "lost", "ran-nowhere", "both-stopped", "both-stopped-with-tests", "stopped-before",
         "tolerated-before"],
)  # fmt: skip
def test_what_a_report_does_not_say_is_a_new_failure(before: CheckSide, after: CheckSide, reason: str) -> None:
    found = compare_check("test", before, after)
    assert any(reason in one for one in found.reasons), found.reasons


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (side("-a +b"), side("-a +b")),
        (side(None, Verdict.FAILED), side(None, Verdict.FAILED)),
        (side(None, Verdict.FAILED), side("-a", Verdict.FAILED)),
        (side(None, Verdict.TIMED_OUT), side(None, Verdict.TIMED_OUT)),
        (CheckSide(), side("+a")),
        (side("-a", exit_code=139), side("-a", exit_code=139)),
        (side("-a +b", Verdict.PASSED), side("-a +b", Verdict.PASSED)),
    ],
)
def test_what_is_as_before_is_no_new_failure(before: CheckSide, after: CheckSide) -> None:
    assert compare_check("test", before, after).reasons == ()


def rules(*names: str) -> CheckSide:
    found = [TestResult(test=name, outcome=TestOutcome.FAILED, rule="E1") for name in names]
    return CheckSide(made(Verdict.FAILED if names else Verdict.PASSED, 1 if names else 0), found)


def test_a_finding_that_is_gone_is_mended_and_not_missing() -> None:
    found = compare_check("lint", rules("a.py: E1", "a.py: E1", "b.py: E1"), rules("a.py: E1"))
    assert kinds(found) == {"a.py: E1": "newly_passing", "b.py: E1": "newly_passing"}
    assert found.reasons == ()
    assert compare_check("lint", rules("a.py: E1"), rules("a.py: E1", "a.py: E1")).reasons


def test_a_test_that_fails_and_passes_on_one_tree_is_flaky_and_shown() -> None:
    before, after = side("+a +b"), side("-a -b")
    again = {"a": Reruns(3, 1, passed_among_all=True), "b": Reruns(3, 3)}
    found = compare_check("test", before, after, again)
    assert kinds(found) == {"a": "flaky", "b": "newly_failing"}
    alone = compare_check("test", before, after, {**again, "a": Reruns(3, 1)})
    assert kinds(alone) == {"a": "newly_failing", "b": "newly_failing"}, "it passed without the other tests only"
    assert [(c.ran, c.failed) for c in found.changes] == [(3, 3), (3, 1)]
    assert found.reasons == ("1 test fails newly",)
    whole = compare_check("lint", side(None), side(None, Verdict.FAILED), {WHOLE: Reruns(2, 1, passed_among_all=True)})
    assert (kinds(whole), whole.reasons) == ({"lint": "flaky"}, ())


@pytest.mark.parametrize(("tests", "kind"), [("-a +b", "newly_failing"), ("+a +b", "newly_passing")])
def test_a_failure_that_was_chance_on_the_other_tree_excuses_none(tests: str, kind: str) -> None:
    before = replace(side("-a +b"), unconfirmed=frozenset({"a"}))
    fails = kind == "newly_failing"
    assert find_excused(before, side(tests)) == ({"a"} if fails else set())
    found = compare_check("test", before, side(tests))
    assert (kinds(found).get("a"), bool(found.reasons)) == (kind, fails)


def test_a_check_without_results_that_failed_by_chance_excuses_none() -> None:
    before, after = side(None, Verdict.FAILED), side(None, Verdict.FAILED)
    assert find_excused(before, after) == {WHOLE}
    assert not compare_check("test", before, after).reasons, "control"
    before = replace(before, unconfirmed=frozenset({WHOLE}))
    assert compare_check("test", before, after).reasons == ("it ended as failed, and before in one run only",)
    found = compare_check("test", before, after, {WHOLE: Reruns(2, 1, passed_among_all=True)})
    assert (found.reasons, kinds(found)) == ((), {"test": "flaky"})


def test_the_worst_changes_are_kept_and_all_are_counted() -> None:
    before: Sequence[str] = [f"-x{n}" for n in range(600)]
    found = compare_check("test", side(" ".join([*before, "+z"])), side(" ".join([*before, "-z"])))
    assert len(found.changes) == 500
    assert found.changes[0].test == "z"
    assert found.counts == {TestChangeKind.NEWLY_FAILING: 1, TestChangeKind.STILL_FAILING: 600}
