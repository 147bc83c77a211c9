"""What a change did to the tests, and in which order several changes are taken."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.models import ExploredWay, TestOutcome, TestResult, Verdict
from sandbox.workbench.checks.ranking import (
    CheckOutcome,
    choose_winner,
    combine_results,
    compare_outcomes,
    describe_base,
    rank_ways,
)

P, F, S, E = TestOutcome.PASSED, TestOutcome.FAILED, TestOutcome.SKIPPED, TestOutcome.ERROR
PASSED, FAILED = Verdict.PASSED, Verdict.FAILED
BEFORE = {
    "build": CheckOutcome(PASSED),
    "test": CheckOutcome(FAILED, {"a": P, "b": P, "c": F, "d": S}),
}


@pytest.mark.parametrize(
    ("after", "newly", "failing", "missing"),
    [
        ({"build": CheckOutcome(PASSED), "test": CheckOutcome(FAILED, {"a": P, "b": P, "c": F, "d": S})}, (), 1, 0),
        ({"build": CheckOutcome(PASSED), "test": CheckOutcome(PASSED, {"a": P, "b": P, "c": P})}, (), 0, 0),
        ({"build": CheckOutcome(PASSED), "test": CheckOutcome(FAILED, {"a": E, "b": P, "c": F, "new": F})},
         ("test: a", "test: new"), 3, 0),
        ({"build": CheckOutcome(PASSED), "test": CheckOutcome(PASSED, {"a": P})}, (), 0, 1),
        ({"build": CheckOutcome(FAILED), "test": CheckOutcome(None)}, ("build", "test", "test: a", "test: b"), 4, 0),
        ({"build": CheckOutcome(PASSED), "test": CheckOutcome(Verdict.TIMED_OUT)},
         ("test", "test: a", "test: b"), 3, 0),
        ({"build": CheckOutcome(PASSED), "test": CheckOutcome(FAILED, {"a": P, "b": S, "c": F})}, (), 1, 0),
    ],
    ids=["same", "mended", "broken", "tests removed", "build broken", "hangs", "skipped now"],
)  # fmt: skip
def test_a_change_is_judged_by_the_tests_of_before(
    after: dict[str, CheckOutcome], newly: tuple[str, ...], failing: int, missing: int
) -> None:
    found = compare_outcomes(BEFORE, after)
    assert (found.newly_failing, found.failing, found.missing) == (newly, failing, missing)


def test_a_check_without_results_counts_as_one_test() -> None:
    before = {"lint": CheckOutcome(PASSED), "old": CheckOutcome(FAILED)}
    found = compare_outcomes(before, {"lint": CheckOutcome(FAILED), "old": CheckOutcome(FAILED)})
    assert (found.newly_failing, found.failing) == (("lint",), 2)


@pytest.mark.parametrize(("known_before", "known_after"), [(True, True), (False, True), (True, False)])
def test_a_check_that_fails_with_tests_that_are_not_known_fails_newly(*, known_before: bool, known_after: bool) -> None:
    """Control: one that passes does not, for its exit status says so."""
    before = {"test": CheckOutcome(FAILED, {"a": F, "b": P}, known_before)}
    found = compare_outcomes(before, {"test": CheckOutcome(FAILED, {"a": F, "b": P}, known_after)})
    is_known = known_before and known_after
    assert found.newly_failing == (() if is_known else ("test (not all of its tests are known)",))
    assert found.failing == (1 if is_known else 2)
    assert compare_outcomes(before, {"test": CheckOutcome(PASSED, {"a": P, "b": P}, known_after)}).newly_failing == ()


def test_a_check_that_passed_although_a_test_failed_and_fails_now_fails_newly() -> None:
    """A report is the guest's word; control: it passes as before, and a test that fails newly is reason enough."""
    before = {"test": CheckOutcome(PASSED, {"a": F, "b": P})}
    assert compare_outcomes(before, {"test": CheckOutcome(FAILED, {"a": F, "b": P})}).newly_failing == ("test",)
    assert compare_outcomes(before, before).newly_failing == ()
    assert compare_outcomes(before, {"test": CheckOutcome(FAILED, {"a": F, "b": F})}).newly_failing == ("test: b",)


def test_what_was_stopped_before_was_not_seen_to_fail() -> None:
    before = {"build": CheckOutcome(Verdict.KILLED), "test": CheckOutcome(None), "lint": CheckOutcome(FAILED)}
    after = {"build": CheckOutcome(PASSED), "test": CheckOutcome(FAILED), "lint": CheckOutcome(FAILED)}
    assert compare_outcomes(before, after).newly_failing == ("test",)
    assert compare_outcomes(before, {**after, "build": CheckOutcome(Verdict.OOM_KILLED)}).newly_failing == (
        "build", "test")  # fmt: skip
    assert compare_outcomes({**before, "build": CheckOutcome(FAILED)}, after).newly_failing == ()


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
    text = describe_base({"build": CheckOutcome(PASSED), "test": CheckOutcome(verdict)})
    assert (said in text) if said else not text


def test_a_base_that_failed_with_tests_that_are_not_known_is_named() -> None:
    """Controls: one that passed, or of which all are known, is not."""
    text = describe_base({"build": CheckOutcome(PASSED, None, False), "test": CheckOutcome(FAILED, {"a": F}, False)})
    assert "not all tests of test are known" in text
    assert not describe_base({"build": CheckOutcome(PASSED, None, False), "test": CheckOutcome(FAILED, {"a": F})})


def test_of_several_tests_of_one_name_the_failure_counts() -> None:
    results = [TestResult(test="x", outcome=outcome) for outcome in (P, F, P)]
    assert combine_results(results) == {"x": F}


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
