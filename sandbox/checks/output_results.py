"""Results of tests from a program's output, in a format that its profile names. Guest data: bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from sandbox.checks.cargo_output import read_cargo
from sandbox.checks.collected import CollectedResults, ReportSum, take_kept
from sandbox.checks.diagnostics import read_lines
from sandbox.checks.node_output import NodeReader
from sandbox.checks.output_lines import READING_S, ReadingTime, read_lines_of
from sandbox.checks.reading_memory import TAP_FACTOR, reserve_for_logs
from sandbox.checks.tap import TapReader
from sandbox.checks.unittest_output import UnittestReader
from sandbox.models import Report
from sandbox.models.checks import OutputFormat
from sandbox.models.test_results import TestResult

_Read = Callable[[Iterator[str]], Iterable[TestResult]]


def read_output(
    logs: Sequence[Path], form: OutputFormat, folder: str, results: CollectedResults, *, failed: bool
) -> Report | None:
    """Add what these logs say, and return their sum; None if they name no test. `folder`: where the check ran.
    `failed`: how it ended; errors of compilers are read only then, since a program that passes may print the word.
    """
    with reserve_for_logs(logs, TAP_FACTOR):
        return _read_formats(logs, form, folder, results, failed=failed)


def _read_formats(
    logs: Sequence[Path], form: OutputFormat, folder: str, results: CollectedResults, *, failed: bool
) -> Report | None:
    total, tap, left = ReportSum(), TapReader(folder=folder), ReadingTime()
    printed = UnittestReader(folder) if form == "unittest" else NodeReader(folder)
    errors: list[_Read] = [partial(read_lines, folder=folder)] if failed else []
    reads: dict[OutputFormat, list[_Read]] = {
        "tap": [tap.read],
        "node": [tap.read, printed.read],
        "unittest": [printed.read],
        "cargo": [partial(read_cargo, folder=folder), *errors],
        "diagnostics": errors,
    }
    for read in reads[form]:
        for log in logs:
            kept = take_kept(read(left.limit(read_lines_of(log))))
            total.add(kept)
            for result in kept:
                results.add(result)
        total.add_unnamed(printed.unnamed)
        results.compared &= read != printed.read or not total.counts["tests"]
        if total.counts["tests"]:  # what ran as a test was compiled
            break
    results.complete &= tap.complete and not printed.unnamed.total()
    if left.is_over:
        results.cut_off(f"its output was not read to its end: that takes more than {READING_S:g} s")
    return total.to_report() if total.counts["tests"] else None
