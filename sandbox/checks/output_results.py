"""Results of tests from a program's output, in a format that its profile names. Guest data: bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from sandbox.checks.cargo_output import read_cargo
from sandbox.checks.collected import MOST_RESULTS, CollectedResults, ReportSum
from sandbox.checks.diagnostics import read_lines
from sandbox.checks.tap import TapReader
from sandbox.models import Report
from sandbox.models.checks import OutputFormat
from sandbox.models.test_results import TestResult
from sandbox.text import neutralise

_LINE_BYTES = 4096


def read_output(logs: Sequence[Path], form: OutputFormat, folder: str, results: CollectedResults) -> Report | None:
    """Add what these logs say, and return their sum; None if they name no test. `folder`: where the check ran."""
    total, tap = ReportSum(), TapReader(folder=folder)
    for log in logs:
        lines = _read_log(log)
        found: Iterator[TestResult]
        if form == "tap":
            found = tap.read(lines)
        else:
            found = iter(read_cargo(lines, folder)) if form == "cargo" else read_lines(lines, folder)
        kept = list(islice(found, MOST_RESULTS + 1))
        total.add(kept)
        for result in kept:
            results.add(result)
    results.complete &= tap.complete
    return total.to_report() if total.counts["tests"] else None


def _read_log(log: Path) -> Iterator[str]:
    with log.open("rb") as file:
        while line := file.readline(_LINE_BYTES):
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            yield neutralise(text) if "\x1b" in text else text
