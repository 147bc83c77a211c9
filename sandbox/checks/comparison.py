"""Compare a check on two trees, test by test. Pure.

Theory. A guest writes its own report, so a report can neither open a gate that the exit status closes nor hide what
the other tree's report has. Tests are matched by name and counted: several tests may have one name, and a second one
that passes must not hide a first one that fails. What the other tree ran and this one did not is missing, and counts
as a failure; so does a failure that the report does not explain, and a report that could not be read to its end. What
remains is what no comparison of reports can see: a guest that fails and says of each test what the base said of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from sandbox.checks.crash import find_crash
from sandbox.lazy_dataclass import dataclass
from sandbox.models import CheckComparison, CheckRun, TestChange, TestResult, Verdict
from sandbox.models.words import BAD_OUTCOMES, TestChangeKind, TestOutcome

WHOLE = ""
"""The name of a check without results of tests, among its tests."""

MOST_CHANGES = 500
"""Maximum number of changes of a check that are kept; their counts are complete."""

_UNKNOWN_TESTS = "not all tests of its reports are known, so a failure may be missing from them"
_NEW_FAILURES = (TestChangeKind.NEWLY_FAILING, TestChangeKind.MISSING)
_EXPLAINING = (*_NEW_FAILURES, TestChangeKind.FLAKY)
"""Why a check that passed may fail now. A test that failed before, too, when the check passed, does not say why."""
_ORDER = {kind: place for place, kind in enumerate(TestChangeKind)}


@dataclass(frozen=True)
class CheckSide:
    """A check on one tree. `run`: None if it did not run. `results`: None if it has none; `complete`: as in
    `TestResults`. `unconfirmed`: tests that failed in this run, and passed or were not seen in another one of the
    same tree, so that they excuse no failure on the other tree; `WHOLE`: the check, if it has no results.
    """

    run: CheckRun | None = None
    results: Sequence[TestResult] | None = None
    complete: bool = True
    unconfirmed: frozenset[str] = frozenset()

    @property
    def verdict(self) -> Verdict | None:
        return self.run.verdict if self.run else None


@dataclass(frozen=True)
class Reruns:
    """How often a test ran again on this tree, with its first run, and how often it failed. `passed_among_all`: in a
    run of the whole check. Else it may fail there each time, as the other tests make it fail.
    """

    ran: int
    failed: int
    passed_among_all: bool = False

    @property
    def is_flaky(self) -> bool:
        """Both outcomes on one tree."""
        return 0 < self.failed < self.ran

    @property
    def is_chance(self) -> bool:
        """Whether the check may pass as it is asked: both outcomes, and not only without the other tests."""
        return self.is_flaky and self.passed_among_all


NO_RERUNS: Mapping[str, Reruns] = {}


def compare_check(
    check_id: str, before: CheckSide, after: CheckSide, reruns: Mapping[str, Reruns] = NO_RERUNS
) -> CheckComparison:
    """Compare the check on the other tree, `before`, with that on this one. `reruns`: of newly failing tests."""
    by_tests = before.results is not None and after.run is not None
    changes = list(_compare_tests(before, after.results or (), reruns)) if by_tests else []
    changes.sort(key=lambda change: (_ORDER[change.change], change.test))
    counts = Counter(change.change for change in changes)
    reasons = list(_list_reasons(before, after, counts) if by_tests else _compare_verdicts(before, after))
    whole = reruns.get(WHOLE)
    if not by_tests and reasons and whole is not None and whole.is_chance:
        reasons, counts = [], Counter({TestChangeKind.FLAKY: 1})
        changes = [TestChange(test=check_id, change=TestChangeKind.FLAKY, ran=whole.ran, failed=whole.failed)]
    return CheckComparison(
        check_id=check_id,
        before=before.verdict,
        after=after.verdict,
        by="tests" if by_tests else "verdict",
        counts=dict(sorted(counts.items(), key=lambda entry: _ORDER[entry[0]])),
        changes=tuple(changes[:MOST_CHANGES]),
        reasons=tuple(reasons),
        before_run_id=before.run.run_id if before.run else None,
        before_cached=before.run.cached if before.run else None,
    )


def require_good_run(found: CheckComparison, before: CheckSide, sides: Sequence[CheckSide]) -> CheckComparison:
    """The comparison with one more reason if it excuses failures as flaky, and none of the runs of the whole check on
    this tree, `sides`, is without a new failure: it may fail each time, by another test (docs/adr/0190).
    """
    if found.reasons or not found.counts.get(TestChangeKind.FLAKY):
        return found
    whole = (side for side in sides if side.run is not None and not side.run.arguments)
    if any(not compare_check(found.check_id, before, side).reasons for side in whole):
        return found
    return found.model_copy(update={"reasons": (_NEVER_GOOD,)})


_NEVER_GOOD = "what fails newly is flaky, but no run of the whole check was without a new failure"


class Tally:
    """The tests of one name: how many ran, how many failed, and what was said of the first that failed."""

    __slots__ = ("bad", "first_bad", "is_rule", "ran")

    def __init__(self) -> None:
        self.ran = self.bad = 0
        self.is_rule = False
        self.first_bad: TestResult | None = None


def tally_results(results: Iterable[TestResult]) -> dict[str, Tally]:
    """Count the tests by name."""
    found: dict[str, Tally] = {}
    for result in results:
        tally = found.get(result.test)
        if tally is None:
            tally = found[result.test] = Tally()
        tally.ran += result.outcome is not TestOutcome.SKIPPED
        tally.is_rule |= result.rule is not None
        if result.outcome in BAD_OUTCOMES:
            tally.bad += 1
            tally.first_bad = tally.first_bad or result
    return found


_NOTHING = Tally()


def find_excused(before: CheckSide, after: CheckSide) -> set[str]:
    """The tests that fail, and are no new failures only because the check failed on the other tree, with them. `WHOLE`
    for a check without results there.
    """
    if before.verdict is not Verdict.FAILED:
        return set()
    if before.results is None:
        return {WHOLE} if after.verdict is Verdict.FAILED else set()
    old, new = tally_results(before.results), tally_results(after.results or ())
    return {name for name, tally in new.items() if 0 < tally.bad <= old.get(name, _NOTHING).bad}


def _compare_tests(
    before: CheckSide, after: Sequence[TestResult], reruns: Mapping[str, Reruns]
) -> Iterator[TestChange]:
    old, new = tally_results(before.results or ()), tally_results(after)
    for name in {**old, **new}:
        kind = _classify(old.get(name, _NOTHING), new.get(name, _NOTHING), is_flaky=name in before.unconfirmed)
        if kind is None:
            continue
        again = reruns.get(name)
        if kind is TestChangeKind.NEWLY_FAILING and again is not None and again.is_chance:
            kind = TestChangeKind.FLAKY
        bad = new[name].first_bad if name in new else None
        yield TestChange(
            test=name,
            change=kind,
            message=bad.message if bad else None,
            path=bad.path if bad else None,
            line=bad.line if bad else None,
            ran=again.ran if again else None,
            failed=again.failed if again else None,
        )


def _classify(old: Tally, new: Tally, *, is_flaky: bool) -> TestChangeKind | None:
    """None: passed on both, or skipped on both. `is_flaky`: on the other tree it passes, too."""
    if new.bad > (0 if is_flaky else old.bad):
        return TestChangeKind.NEWLY_FAILING
    if new.ran < old.ran and not old.is_rule:
        return TestChangeKind.MISSING
    if new.bad < old.bad:
        return TestChangeKind.NEWLY_PASSING
    if new.bad:
        return TestChangeKind.STILL_FAILING
    return TestChangeKind.NEW if new.ran and not old.ran else None


def _list_reasons(before: CheckSide, after: CheckSide, counts: Counter[TestChangeKind]) -> Iterator[str]:
    """Why there are new failures, by the tests of both reports and the facts of both runs."""
    for kind in _NEW_FAILURES:
        if counts[kind]:
            yield _count(counts[kind], _WORDS[kind])
    if after.run is None or after.run.verdict is Verdict.PASSED:
        return
    if before.run is not None and (change := _compare_endings(before.run, after.run)):
        yield change
    elif before.verdict is Verdict.PASSED and not any(counts[kind] for kind in _EXPLAINING):
        yield f"it ended as {after.run.verdict.value}, and passed before, and its report names no test that fails newly"
    if not (before.complete and after.complete):
        yield _UNKNOWN_TESTS
    if not any(result.outcome in BAD_OUTCOMES for result in after.results or ()):
        yield "it failed, and its report names no test that failed"


_WORDS = {
    TestChangeKind.NEWLY_FAILING: ("fails newly", "fail newly"),
    TestChangeKind.MISSING: ("is missing", "are missing"),
}


def _count(number: int, words: tuple[str, str]) -> str:
    return f"{number} test {words[0]}" if number == 1 else f"{number:,} tests {words[1]}"


def _compare_endings(before: CheckRun, after: CheckRun) -> str:
    """What is worse about how the check ended, beside its tests; empty for an end that is no worse. A check that was
    stopped does not judge its tree, so two of them are not alike.
    """
    if Verdict.KILLED in {before.verdict, after.verdict}:
        return "it was stopped" if after.verdict is Verdict.KILLED else "it failed, and was stopped before"
    if after.verdict is not Verdict.FAILED and after.verdict is not before.verdict:
        return f"it ended as {after.verdict.value}, and before as {before.verdict.value}"
    crash = find_crash(after)
    if crash is not None and find_crash(before) is None:
        return f"{crash.subject} was ended by {crash.name}, and before by no signal"
    return ""


def _compare_verdicts(before: CheckSide, after: CheckSide) -> Iterator[str]:
    """A check without results of tests on the other tree, or one that did not run."""
    if after.run is None:
        yield "it did not run, and before it did" if before.run is not None else "it ran on neither tree"
    elif after.run.verdict is Verdict.PASSED:
        return
    elif before.run is None:
        yield f"it ended as {after.run.verdict.value}, and did not run before"
    elif before.run.verdict is Verdict.PASSED:
        yield f"it ended as {after.run.verdict.value}, and passed before"
    elif WHOLE in before.unconfirmed:
        yield f"it ended as {after.run.verdict.value}, and before in one run only"
    else:
        if change := _compare_endings(before.run, after.run):
            yield change
        if not (before.complete and after.complete):
            yield _UNKNOWN_TESTS
