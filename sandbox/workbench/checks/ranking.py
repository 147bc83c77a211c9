"""Compare the tests of two states of a task, and order several states by what they break. Pure (docs/adr/0108)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sandbox.lazy_dataclass import dataclass
from sandbox.models import ExploredWay, TestOutcome, TestResult, Verdict
from sandbox.models.words import BAD_OUTCOMES

UNKNOWN_TESTS = "not all of its tests are known"

_OWN_ENDS = frozenset({Verdict.PASSED, Verdict.FAILED, None})
"""Of checks that ended by themselves, or were not run because one that they require failed."""


@dataclass(frozen=True)
class CheckOutcome:
    """What a check said on one state. `tests`: by name; None if it reports none. `verdict`: None if it did not run.
    `complete`: whether all of its tests are known.
    """

    verdict: Verdict | None
    tests: Mapping[str, TestOutcome] | None = None
    complete: bool = True

    @property
    def passed(self) -> bool:
        """Whether the whole check passed."""
        return self.verdict is Verdict.PASSED

    def failing(self, check_id: str) -> set[str]:
        """The names of what fails; the check itself, if it does not pass and names no failing test."""
        bad = {f"{check_id}: {name}" for name, outcome in (self.tests or {}).items() if outcome in BAD_OUTCOMES}
        return bad if bad or self.passed else {check_id}

    def passing(self, check_id: str) -> set[str]:
        """The names of the tests that passed."""
        return {f"{check_id}: {name}" for name, outcome in (self.tests or {}).items() if outcome is TestOutcome.PASSED}


Outcomes = Mapping[str, CheckOutcome]
"""By check. A check that did not run because one that it requires did not pass has no verdict."""


def combine_results(results: Iterable[TestResult]) -> dict[str, TestOutcome]:
    """The outcome of each name. Several tests of one name fail if one of them does."""
    found: dict[str, TestOutcome] = {}
    for result in results:
        if found.get(result.test) not in BAD_OUTCOMES:
            found[result.test] = result.outcome
    return found


@dataclass(frozen=True)
class OutcomeDifference:
    """`newly_failing`: fail now and did not before. `failing`: all that fail now. `missing`: passed before, and a check
    that passes now no longer has them.
    """

    newly_failing: tuple[str, ...]
    failing: int
    missing: int


def compare_outcomes(before: Outcomes, after: Outcomes) -> OutcomeDifference:
    """What a change did to the tests. A test that passed, and has no result because its check does not pass now, fails:
    a change that breaks the build breaks every test. What was stopped before, or did not run because of that, was not
    seen to fail: if it fails now, it fails newly. A check that does not pass, and of which not all tests are known on
    both sides, may hide a failure: it fails newly, once more; as does one that passed although the same tests failed.
    """
    failing, lost = set[str](), set[str]()
    failed_before = {name for check_id, outcome in before.items() for name in outcome.failing(check_id)}
    if any(outcome.verdict is Verdict.KILLED for outcome in before.values()):
        failed_before -= {name for name, outcome in before.items() if outcome.verdict in {Verdict.KILLED, None}}
    for check_id, outcome in after.items():
        bad, good = outcome.failing(check_id), outcome.passing(check_id)
        known = before[check_id].passing(check_id) if check_id in before else set()
        gone = known - good - bad - {f"{check_id}: {name}" for name in outcome.tests or {}}
        if outcome.passed:
            lost |= gone
        else:
            bad |= gone
            bad |= _find_unknown(check_id, before.get(check_id), outcome)
            if check_id in before and before[check_id].passed and bad <= failed_before:
                bad.add(check_id)
        failing |= bad
    return OutcomeDifference(tuple(sorted(failing - failed_before)), len(failing), len(lost))


def _find_unknown(check_id: str, before: CheckOutcome | None, after: CheckOutcome) -> set[str]:
    """What stands for the failures that may be missing from either side; empty if none can be."""
    is_complete = after.complete and (before is None or before.complete)
    return set() if is_complete else {f"{check_id} ({UNKNOWN_TESTS})"}


def describe_base(before: Outcomes) -> str:
    """What of the task's own state is no good measure, because it did not end by itself, or failed with tests that are
    not known; '' if all of it is.
    """
    unknown = [check_id for check_id, outcome in before.items() if not (outcome.passed or outcome.complete)]
    said = f"of the task's own state, not all tests of {', '.join(unknown)} are known: a way is good only if it passes"
    return "; ".join(filter(None, (_describe_cut(before), said if unknown else "")))


def _describe_cut(before: Outcomes) -> str:
    cut = {check_id: outcome.verdict for check_id, outcome in before.items() if outcome.verdict not in _OWN_ENDS}
    if not cut:
        return ""
    named = ", ".join(f"{check_id} ended with {verdict}" for check_id, verdict in cut.items())
    if Verdict.KILLED in cut.values():
        rest = "it was stopped, or the host had no memory left. Failures of it count as new; explore again"
    else:
        rest = "tests that it did not reach count as new where they fail"
    return f"of the task's own state, {named}: {rest}"


def rank_ways(ways: Sequence[ExploredWay]) -> tuple[ExploredWay, ...]:
    """The best first, with their ranks; those with a problem last, without one.

    Order: newly failing tests, missing ones, tests that still fail, size of the difference, time, memory; then as
    given.
    """
    tried = sorted((way for way in ways if way.problem is None), key=_cost)
    ranked = [way.model_copy(update={"rank": rank}) for rank, way in enumerate(tried, 1)]
    return (*ranked, *(way for way in ways if way.problem is not None))


def _cost(way: ExploredWay) -> tuple[float, ...]:
    size = way.additions + way.deletions
    return (
        way.newly_failing, way.missing, way.failing, size, way.files, way.wall_time_s, way.memory_peak_bytes or 0
    )  # fmt: skip


def choose_winner(ranked: Sequence[ExploredWay]) -> ExploredWay | None:
    """The first way, if it breaks no test and loses none."""
    best = ranked[0] if ranked else None
    return best if best and best.problem is None and not best.newly_failing and not best.missing else None
