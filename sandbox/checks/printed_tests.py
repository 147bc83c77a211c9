"""Tests of which a runner prints sums, and some by name, for people: which names can be believed. Guest data.

The sums are the counts. Where more names have an outcome than the sums count, a program under test prints such lines,
too, and none of them is taken for a test. So names are for readers, and no comparison rests on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from sandbox.checks.collected import MOST_RESULTS, clip_text
from sandbox.checks.location import find_location
from sandbox.models.test_results import TestResult
from sandbox.models.words import BAD_OUTCOMES, TestOutcome


@dataclass(frozen=True)
class NamedTest:
    """A test that a line names. `message`, `text`: what is said of it if it failed; `place`: a file and a line."""

    name: str
    outcome: TestOutcome
    message: str = ""
    text: str = ""
    place: tuple[str, str] = ("", "")

    def to_result(self, folder: str) -> TestResult:
        """`folder`: where the check ran."""
        name = clip_text(self.name)
        if self.outcome not in BAD_OUTCOMES:
            return TestResult(test=name, outcome=self.outcome)
        path, line = find_location(self.text, *self.place, folder=folder)
        return TestResult(
            test=name, outcome=self.outcome, message=clip_text(self.message) or None, path=path, line=line
        )


def choose_named(
    named: Iterable[NamedTest], sums: Counter[TestOutcome]
) -> tuple[list[NamedTest], Counter[TestOutcome]]:
    """At most `MOST_RESULTS` of the named tests, what failed first, and how many others the sums count. Pure."""
    found = sorted(named, key=lambda one: one.outcome not in BAD_OUTCOMES)
    counts = Counter(one.outcome for one in found)
    kept = [one for one in found if counts[one.outcome] <= sums[one.outcome]][:MOST_RESULTS]
    return kept, sums - Counter(one.outcome for one in kept)
