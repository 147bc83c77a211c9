"""What a change did to the tests, and in which order several changes are taken."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.models import ExploredWay, TestOutcome, TestResult, Verdict
from sandbox.workbench.checks.ranking import (
    CheckOutcome,
    choose_winner,
    compare_outcomes,
    count_results,
    describe_base,
    rank_ways,
)

P, F, S, E = TestOutcome.PASSED, TestOutcome.FAILED, TestOutcome.SKIPPED, TestOutcome.ERROR
PASSED, FAILED = Verdict.PASSED, Verdict.FAILED


def outcome(
    verdict: Verdict | None, tests: dict[str, TestOutcome] | None = None, complete: bool = True
) -> CheckOutcome:
    """Of a check with one test of each name."""
    results = None if tests is None else [TestResult(test=name, outcome=each) for name, each in tests.items()]
    return CheckOutcome(verdict, None if results is None else count_results(results), complete)


BEFORE = {
    "build": outcome(PASSED),
    "test": outcome(FAILED, {"a": P, "b": P, "c": F, "d": S}),
}


@pytest.mark.parametrize(
    ("after", "newly", "failing", "missing"),
    [
        ({"build": outcome(PASSED), "test": outcome(FAILED, {"a": P, "b": P, "c": F, "d": S})}, (), 1, 0),
        ({"build": outcome(PASSED), "test": outcome(PASSED, {"a": P, "b": P, "c": P})}, (), 0, 0),
        ({"build": outcome(PASSED), "test": outcome(FAILED, {"a": E, "b": P, "c": F, "new": F})},
         ("test: a", "test: new"), 3, 0),
        ({"build": outcome(PASSED), "test": outcome(PASSED, {"a": P})}, (), 0, 2),
        ({"build": outcome(PASSED), "test": outcome(PASSED, {"a": S, "b": S, "c": S})}, (), 0, 3),
        ({"build": outcome(PASSED), "test": outcome(FAILED, {"a": P, "b": P, "d": F})}, ("test: d",), 1, 1),
        ({"build": outcome(PASSED), "test": outcome(PASSED)}, (), 0, 3),
        ({"build": outcome(FAILED), "test": outcome(None)}, ("build", "test", "test: a", "test: b"), 4, 0),
        ({"build": outcome(PASSED), "test": outcome(Verdict.TIMED_OUT)},
         ("test", "test: a", "test: b"), 3, 0),
        ({"build": outcome(PASSED), "test": outcome(FAILED, {"a": P, "b": S, "c": F})}, (), 1, 1),
    ],
    ids=["same", "mended", "broken", "tests removed", "all skipped now", "a failing one removed", "no report any more",
         "build broken", "hangs", "one skipped now"],
)  # fmt: skip
def test_a_change_is_judged_by_the_tests_of_before(
    after: dict[str, CheckOutcome], newly: tuple[str, ...], failing: int, missing: int
) -> None:
    found = compare_outcomes(BEFORE, after)
    assert (found.newly_failing, found.failing, found.missing) == (newly, failing, missing)


def test_a_check_without_results_counts_as_one_test() -> None:
    before = {"lint": outcome(PASSED), "old": outcome(FAILED)}
    found = compare_outcomes(before, {"lint": outcome(FAILED), "old": outcome(FAILED)})
    assert (found.newly_failing, found.failing) == (("lint",), 2)


@pytest.mark.parametrize(("known_before", "known_after"), [(True, True), (False, True), (True, False)])
def test_a_check_that_fails_with_tests_that_are_not_known_fails_newly(*, known_before: bool, known_after: bool) -> None:
    """Control: one that passes does not, for its exit status says so."""
    before = {"test": outcome(FAILED, {"a": F, "b": P}, known_before)}
    found = compare_outcomes(before, {"test": outcome(FAILED, {"a": F, "b": P}, known_after)})
    is_known = known_before and known_after
    assert found.newly_failing == (() if is_known else ("test (not all of its tests are known)",))
    assert found.failing == (1 if is_known else 2)
    assert compare_outcomes(before, {"test": outcome(PASSED, {"a": P, "b": P}, known_after)}).newly_failing == ()


def test_a_check_that_passed_although_a_test_failed_and_fails_now_fails_newly() -> None:
    """A report is the guest's word; control: it passes as before, and a test that fails newly is reason enough."""
    before = {"test": outcome(PASSED, {"a": F, "b": P})}
    assert compare_outcomes(before, {"test": outcome(FAILED, {"a": F, "b": P})}).newly_failing == ("test",)
    assert compare_outcomes(before, before).newly_failing == ()
    assert compare_outcomes(before, {"test": outcome(FAILED, {"a": F, "b": F})}).newly_failing == ("test: b",)


def test_what_was_stopped_before_was_not_seen_to_fail() -> None:
    before = {"build": outcome(Verdict.KILLED), "test": outcome(None), "lint": outcome(FAILED)}
    after = {"build": outcome(PASSED), "test": outcome(FAILED), "lint": outcome(FAILED)}
    assert compare_outcomes(before, after).newly_failing == ("test",)
    assert compare_outcomes(before, {**after, "build": outcome(Verdict.OOM_KILLED)}).newly_failing == (
        "build", "test")  # fmt: skip
    assert compare_outcomes({**before, "build": outcome(FAILED)}, after).newly_failing == ()


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (PASSED, None),
        (FAILED, None),
        (None, None),
        (Verdict.KILLED, "test ended with killed: it was stopped, or the host had no memory left"),
        (Verdict.OOM_KILLED, "test ended with oom_killed: tests that it did not reach count as new"),
    ],
)
def test_a_base_that_is_no_measure_is_named(verdict: Verdict | None, said: str | None) -> None:
    text = describe_base({"build": outcome(PASSED), "test": outcome(verdict)})
    assert (said in text) if said else not text


def test_a_base_that_failed_with_tests_that_are_not_known_is_named() -> None:
    """Controls: one that passed, or of which all are known, is not."""
    text = describe_base({"build": outcome(PASSED, None, False), "test": outcome(FAILED, {"a": F}, False)})
    assert "not all tests of test are known" in text
    assert not describe_base({"build": outcome(PASSED, None, False), "test": outcome(FAILED, {"a": F})})


def several(*outcomes: TestOutcome, rule: str | None = None) -> dict[str, CheckOutcome]:
    """A check with tests of one name, which end so."""
    results = [TestResult(test="x", outcome=each, rule=rule) for each in outcomes]
    verdict = FAILED if {F, E} & set(outcomes) else PASSED
    return {"test": CheckOutcome(verdict, count_results(results))}


@pytest.mark.parametrize(
    ("before", "after", "newly", "failing", "missing"),
    [
        pytest.param((F, P), (F, F), ("test: x",), 2, 0, id="one more fails"),
        pytest.param((F, F), (F, P), (), 1, 0, id="one less fails"),
        pytest.param((F, P), (P, F), (), 1, 0, id="another one: nobody can tell them apart"),
        pytest.param((P, P), (P,), (), 0, 1, id="one is gone"),
        pytest.param((P, P), (P, S), (), 0, 1, id="one is skipped"),
        pytest.param((F, P), (F,), (), 1, 1, id="a second failure hides no test that is gone"),
        pytest.param((P,), (P, P), (), 0, 0, id="control: one more passes"),
    ],
)
def test_several_tests_of_one_name_are_counted(
    before: tuple[TestOutcome, ...], after: tuple[TestOutcome, ...], newly: tuple[str, ...], failing: int, missing: int
) -> None:
    found = compare_outcomes(several(*before), several(*after))
    assert (found.newly_failing, found.failing, found.missing) == (newly, failing, missing)


def test_a_finding_of_a_linter_that_is_gone_is_no_test_that_is_missing() -> None:
    assert compare_outcomes(several(F, rule="E1"), {"test": CheckOutcome(PASSED, {})}).missing == 0
    assert compare_outcomes(several(F), {"test": CheckOutcome(PASSED, {})}).missing == 1, "control"


def test_a_way_that_skips_every_test_does_not_win() -> None:
    """Nothing fails in it, and it is smaller than the one that mends the test."""
    before = {"test": outcome(FAILED, {"bug": F, "ok": P})}
    found = [
        (name, compare_outcomes(before, {"test": outcome(PASSED, tests)}), size)
        for name, tests, size in (("skips", {"bug": S, "ok": S}, 1), ("mends", {"bug": P, "ok": P}, 9))
    ]
    ways = [
        way(name, newly_failing=len(one.newly_failing), missing=one.missing, failing=one.failing, additions=size)
        for name, one, size in found
    ]
    winner = choose_winner(rank_ways(ways))
    assert winner is not None
    assert winner.name == "mends"


def way(name: str, **fields: Any) -> ExploredWay:
    return ExploredWay(name=name, **fields)


def test_the_order_is_tests_then_size_then_time_then_memory() -> None:
    ways = [
        way("cannot be applied", problem="patch_rejected: it does not fit"),
        way("breaks one, tiny", newly_failing=1, additions=1),
        way("loses one", missing=1),
        way("mends nothing, tiny", failing=1, additions=1),
        way("large", additions=9, deletions=9),
        way("slow", additions=2, wall_time_s=9.0),
        way("fat", additions=2, wall_time_s=1.0, memory_peak_bytes=2000),
        way("best", additions=2, wall_time_s=1.0, memory_peak_bytes=1000),
    ]
    ranked = rank_ways(ways)
    assert [(one.rank, one.name) for one in ranked] == [
        (1, "best"), (2, "fat"), (3, "slow"), (4, "large"), (5, "mends nothing, tiny"), (6, "loses one"),
        (7, "breaks one, tiny"), (None, "cannot be applied"),
    ]  # fmt: skip
    assert rank_ways(ways[::-1])[:7] == ranked[:7]


@pytest.mark.parametrize(
    "best", [way("a", problem="internal: x"), way("a", newly_failing=1), way("a", missing=1), None]
)
def test_what_breaks_or_loses_a_test_never_wins(best: ExploredWay | None) -> None:
    ways = [] if best is None else [best]
    assert choose_winner(rank_ways(ways)) is None
    good = way("good", additions=5)
    assert choose_winner(rank_ways([*ways, good])) == good.model_copy(update={"rank": 1})
