"""Test results of programs that print a line for each test, as the check's patterns say. Guest data: bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import regex

from sandbox.checks.collected import CollectedResults, clip_text
from sandbox.checks.output_lines import ReadingTime, read_lines_of
from sandbox.checks.reading_memory import LINE_FACTOR, reserve_for_logs
from sandbox.models import Report, TestFailure
from sandbox.models.checks import ResultPatterns
from sandbox.models.test_results import TestResult
from sandbox.models.words import TestOutcome

_LINE_S = 1.0  # of a pattern on one line; `regex` counts the processor time of all threads of a process (clock(3))
_CUT_OFF = "its output was not read to its end: its patterns take too long (`results` of the profile)"


def read_line_results(logs: Sequence[Path], patterns: ResultPatterns, results: CollectedResults) -> Report | None:
    """Add what the lines of these logs say, and return their sum; None if no line matches.

    Lines that cost a pattern too much processor time, or all together more than `READING_S`, make the results
    incomplete. How busy the host is does not.
    """
    with reserve_for_logs(logs, LINE_FACTOR):
        return _match_lines(logs, patterns, results)


def _match_lines(logs: Sequence[Path], patterns: ResultPatterns, results: CollectedResults) -> Report | None:
    compiled = [(outcome, regex.compile(text)) for outcome, text in patterns.by_outcome()]
    counts: Counter[TestOutcome] = Counter()
    failed: list[TestFailure] = []
    left = ReadingTime()
    try:
        for text in chain.from_iterable(map(read_lines_of, logs)):
            if left.look():
                results.cut_off(_CUT_OFF)
                break
            for outcome, pattern in compiled:
                found = pattern.search(text, timeout=_LINE_S)
                if found is not None:
                    name = clip_text(found[1] or found[0])
                    counts[outcome] += 1
                    results.add(TestResult(test=name, outcome=outcome))
                    if outcome is TestOutcome.FAILED and len(failed) < results.MOST_FAILURES:
                        failed.append(TestFailure(name=name, message=clip_text(text)))
                    break
    except TimeoutError:
        results.cut_off(_CUT_OFF)
    if not counts:
        return None
    return Report(
        tests=counts.total(),
        failures=counts[TestOutcome.FAILED],
        errors=0,
        skipped=counts[TestOutcome.SKIPPED],
        failed=tuple(failed),
    )
