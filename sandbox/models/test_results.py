"""What a run's report says of each test. Guest text: shown, never the basis of a verdict."""

from __future__ import annotations

from typing import Literal

from sandbox.models.model import Model, SparseModel
from sandbox.models.words import TestOutcome


class TestResult(SparseModel):
    """One test of a report. `message`, `path`, `line`: of a failure, if the report has them.

    `rule`: only of what a compiler or linter says, which is no test: what it found, such as `F401`. It is in a report
    as long as it is found, so one that is not there any more is mended, and not missing.
    """

    __test__ = False  # not a pytest class

    test: str
    outcome: TestOutcome
    time_s: float | None = None
    message: str | None = None
    path: str | None = None
    line: int | None = None
    rule: str | None = None


ResultSource = Literal["junit", "lines", "report", "output"]
"""Where results come from: JUnit files in /report, files of another format or of several there, lines of the output
that match the check's patterns, or the output in a format that the check names.
"""


class TestResults(Model):
    """The tests of a run, in the order of its report: one page. `total`: how many there are, of those that were asked
    for. `next_cursor`: where the next page starts; None after the last. `complete`: False if the report had more tests
    than are kept, or could not be read to its end.
    """

    __test__ = False  # not a pytest class

    run_id: str
    check_id: str
    source: ResultSource
    total: int
    results: tuple[TestResult, ...]
    next_cursor: int | None
    complete: bool
