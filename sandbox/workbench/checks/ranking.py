"""Compare the tests of two states of a task, and order several states by what they break. Pure (docs/adr/0108)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sandbox.checks.comparison import tally_results
from sandbox.lazy_dataclass import dataclass
from sandbox.models import ExploredWay, TestResult, Verdict

UNKNOWN_TESTS = "not all of its tests are known"

_OWN_ENDS = frozenset({Verdict.PASSED, Verdict.FAILED, None})
"""Of checks that ended by themselves, or were not run because one that they require failed."""


class TestCount(NamedTuple):
    """The tests of one name: how many ran, which those that are skipped do not, and how many failed. `is_rule`: it is a
    rule of a linter, and each failure a finding.
    """

    ran: int = 0
    bad: int = 0
    is_rule: bool = False


_NONE = TestCount()


@dataclass(frozen=True)
class CheckOutcome:
    """What a check said on one state. `tests`: by name; None if it reports none. `verdict`: None if it did not run.
    `complete`: whether all of its tests are known.
    """

    verdict: Verdict | None
    tests: Mapping[str, TestCount] | None = None
    complete: bool = True

    @property
    def passed(self) -> bool:
        """Whether the whole check passed."""
        return self.verdict is Verdict.PASSED

    def failing(self, check_id: str) -> Counter[str]:
        """What fails, by name; the check itself, if it does not pass and names no failing test."""
        bad = Counter({f"{check_id}: {name}": test.bad for name, test in (self.tests or {}).items() if test.bad})
        return bad if bad or self.passed else Counter({check_id: 1})


Outcomes = Mapping[str, CheckOutcome]
"""By check. A check that did not run because one that it requires did not pass has no verdict."""


def count_results(results: Iterable[TestResult]) -> dict[str, TestCount]:
    """The tests of each name, counted as a comparison of two trees counts them."""
    tallies = tally_results(results)
    return {name: TestCount(tally.ran, tally.bad, tally.is_rule) for name, tally in tallies.items()}


@dataclass(frozen=True)
class OutcomeDifference:
    """`newly_failing`: the names of which more fail now than before. `failing`: how many fail now. `missing`: the names
    of which fewer ran now, as they are gone or skipped.
    """

    newly_failing: tuple[str, ...]
    failing: int
    missing: int


def compare_outcomes(before: Outcomes, after: Outcomes) -> OutcomeDifference:
    """What a change did to the tests, counted by name as `compare_check` does. A test that passed, and has no result
    because its check does not pass now, fails: a change that breaks the build breaks every test. What was stopped
    before, or did not run because of that, was not seen to fail: if it fails now, it fails newly. A check that does not
    pass, and of which not all tests are known on both sides, may hide a failure: it fails newly, once more; as does one
    that passed although the same tests failed.
    """
    failing, failed_before, missing = Counter[str](), Counter[str](), 0
    was_stopped = any(outcome.verdict is Verdict.KILLED for outcome in before.values())
    for check_id, outcome in before.items():
        failed_before.update(outcome.failing(check_id))
        if was_stopped and outcome.verdict in {Verdict.KILLED, None}:
            del failed_before[check_id]
    for check_id, outcome in after.items():
        bad, old = outcome.failing(check_id), before.get(check_id, CheckOutcome(Verdict.PASSED))
        for name, count in _find_lost(old, outcome):
            if count is None:
                missing += 1
            else:
                bad[f"{check_id}: {name}"] = count
        if not outcome.passed:
            bad.update(_find_unknown(check_id, old, outcome))
            if check_id in before and old.passed and not bad - failed_before:
                bad[check_id] = 1
        failing.update(bad)
    return OutcomeDifference(tuple(sorted(failing - failed_before)), failing.total(), missing)


def _find_lost(before: CheckOutcome, after: CheckOutcome) -> Iterator[tuple[str, int | None]]:
    """The names of which fewer ran. With a number: so many count as failing, because the check does not pass, has none
    of that name, and one of them passed before.
    """
    now = after.tests or {}
    for name, old in (before.tests or {}).items():
        new = now.get(name, _NONE)
        if new.ran >= old.ran or new.bad > old.bad or old.is_rule:
            continue
        if after.passed or name in now:
            yield name, None
        elif old.ran > old.bad:
            yield name, old.ran
        elif after.tests is not None:  # else the whole check fails
            yield name, None


def _find_unknown(check_id: str, before: CheckOutcome, after: CheckOutcome) -> Iterator[str]:
    """What stands for the failures that may be missing from either side, if any can be."""
    if not (before.complete and after.complete):
        yield f"{check_id} ({UNKNOWN_TESTS})"


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
