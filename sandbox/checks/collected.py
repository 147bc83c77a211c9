"""The tests of a run's reports, as many as are kept. Guest data: bounded, neutralised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from sandbox.models import Report, TestFailure
from sandbox.models.test_results import TestResult
from sandbox.models.words import TestOutcome
from sandbox.text import neutralise

MOST_RESULTS = 20_000
"""How many tests of a run are kept."""

MOST_CHARS = 8 * 1024**2
"""Of the names, messages and paths of a run's tests together. A character takes up to four bytes."""

MOST_FAILURES = 50
"""How many failed tests are in the record of a run."""

_TEXT = 500
_NAMES = {TestOutcome.FAILED: "failures", TestOutcome.ERROR: "errors", TestOutcome.SKIPPED: "skipped"}


class CollectedResults:
    """The tests of a report, as many as are kept. `complete`: whether all of them are there. `compared`: whether their
    names are those of the same tests in another run. `note`: what was not read, and why; '' if all was.
    """

    MOST_FAILURES = MOST_FAILURES

    def __init__(self) -> None:
        self.results: list[TestResult] = []
        self.complete = self.compared = True
        self.note = ""
        self._chars = 0

    def add(self, result: TestResult) -> None:
        """Keep a result, as long as there is room."""
        self._chars += _count_chars(result)
        if len(self.results) < MOST_RESULTS and self._chars <= MOST_CHARS:
            self.results.append(result)
        else:
            self.complete = False

    def list_failed(self, most: int) -> tuple[TestFailure, ...]:
        """The first tests that did not pass."""
        bad = (result for result in self.results if result.outcome in {TestOutcome.FAILED, TestOutcome.ERROR})
        return tuple(as_failure(result) for result in islice(bad, most))

    def cut_off(self, note: str) -> None:
        """Say that not all was read, and why."""
        self.complete, self.note = False, f"{self.note}; {note}" if self.note else note


def take_kept(results: Iterable[TestResult]) -> list[TestResult]:
    """As many results as are kept, and one more if there are more, so that `CollectedResults` is not complete."""
    taken, chars = list[TestResult](), 0
    for result in results:
        taken.append(result)
        chars += _count_chars(result)
        if len(taken) > MOST_RESULTS or chars > MOST_CHARS:
            break
    return taken


def _count_chars(result: TestResult) -> int:
    return len(result.test) + len(result.message or "") + len(result.path or "")


class ReportSum:
    """Sums of results, and the first that failed."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failed: list[TestFailure] = []
        self.only_rules = True

    def add(self, results: Sequence[TestResult]) -> None:
        """Count results."""
        for result in results:
            self.only_rules &= result.rule is not None
            name = self._count(result.outcome, 1)
            if name in {"failures", "errors"} and len(self.failed) < MOST_FAILURES:
                self.failed.append(as_failure(result))

    def add_unnamed(self, counts: Mapping[TestOutcome, int]) -> None:
        """Count tests of which only the number is known."""
        for outcome, count in counts.items():
            self.only_rules &= not count
            self._count(outcome, count)

    def _count(self, outcome: TestOutcome, count: int) -> str | None:
        """The name of the sum that these tests are in beside that of all; None if they passed."""
        self.counts["tests"] += count
        name = _NAMES.get(outcome)
        if name is not None:
            self.counts[name] += count
        return name

    def to_report(self) -> Report:
        """The sum. It is of `diagnostics` if all results are."""
        counts = {name: self.counts[name] for name in ("tests", "failures", "errors", "skipped")}
        kind = "diagnostics" if self.only_rules else "tests"
        return Report(**counts, failed=tuple(self.failed[:MOST_FAILURES]), kind=kind)


def as_failure(result: TestResult) -> TestFailure:
    """A failed test as it is in the record of a run. Pure."""
    return TestFailure(name=result.test, message=result.message or "", path=result.path, line=result.line)


def clip_text(text: str) -> str:
    """The beginning of a text of the guest, safe to show."""
    return neutralise(text[: 4 * _TEXT])[:_TEXT]
