"""Test results of programs that print a line for each test, as the check's patterns say. Guest data: bounded."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import regex

from sandbox.checks.collected import CollectedResults, clip_text
from sandbox.models import Report, TestFailure
from sandbox.models.checks import ResultPatterns
from sandbox.models.test_results import TestResult
from sandbox.models.words import TestOutcome
from sandbox.text import neutralise

_LINE_BYTES = 4096
_BUDGET_S = 5.0
_LINE_BUDGET_S = 0.1


def read_line_results(logs: Sequence[Path], patterns: ResultPatterns, results: CollectedResults) -> Report | None:
    """Add what the lines of these logs say, and return their sum; None if no line matches.

    A log with a dropped middle, and lines that cost a pattern too much time, make the results incomplete.
    """
    compiled = [(outcome, regex.compile(text)) for outcome, text in patterns.by_outcome()]
    counts: Counter[TestOutcome] = Counter()
    failed: list[TestFailure] = []
    ends_at = time.monotonic() + _BUDGET_S
    try:
        for text in _read_lines(logs):
            for outcome, pattern in compiled:
                found = pattern.search(text, timeout=_LINE_BUDGET_S)
                if found is not None:
                    name = clip_text(found[1] or found[0])
                    counts[outcome] += 1
                    results.add(TestResult(test=name, outcome=outcome))
                    if outcome is TestOutcome.FAILED:
                        failed.append(TestFailure(name=name, message=clip_text(text)))
                    break
            if time.monotonic() > ends_at:
                results.complete = False
                break
    except TimeoutError:
        results.complete = False
    if not counts:
        return None
    return Report(
        tests=counts.total(),
        failures=counts[TestOutcome.FAILED],
        errors=0,
        skipped=counts[TestOutcome.SKIPPED],
        failed=tuple(failed[: results.MOST_FAILURES]),
    )


def _read_lines(logs: Sequence[Path]) -> Iterator[str]:
    for path in logs:
        with path.open("rb") as file:
            while line := file.readline(_LINE_BYTES):
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                yield neutralise(text) if "\x1b" in text else text
