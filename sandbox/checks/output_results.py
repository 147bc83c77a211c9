"""Results of tests from a program's output, in a format that its profile names. Guest data: bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from sandbox.checks.cargo_output import read_cargo
from sandbox.checks.collected import MOST_RESULTS, CollectedResults, ReportSum
from sandbox.checks.diagnostics import read_lines
from sandbox.checks.node_output import NodeReader
from sandbox.checks.tap import TapReader
from sandbox.checks.unittest_output import UnittestReader
from sandbox.models import Report
from sandbox.models.checks import OutputFormat
from sandbox.models.test_results import TestResult
from sandbox.text import neutralise

_LINE_BYTES = 4096


_Read = Callable[[Iterator[str]], Iterable[TestResult]]


def read_output(
    logs: Sequence[Path], form: OutputFormat, folder: str, results: CollectedResults, *, failed: bool
) -> Report | None:
    """Add what these logs say, and return their sum; None if they name no test. `folder`: where the check ran.
    `failed`: how it ended; errors of compilers are read only then, since a program that passes may print the word.
    """
    total, tap = ReportSum(), TapReader(folder=folder)
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
            kept = list(islice(read(_read_log(log)), MOST_RESULTS + 1))
            total.add(kept)
            for result in kept:
                results.add(result)
        total.add_unnamed(printed.unnamed)
        results.compared &= read != printed.read or not total.counts["tests"]
        if total.counts["tests"]:  # what ran as a test was compiled
            break
    results.complete &= tap.complete and not printed.unnamed.total()
    return total.to_report() if total.counts["tests"] else None


def _read_log(log: Path) -> Iterator[str]:
    with log.open("rb") as file:
        while line := file.readline(_LINE_BYTES):
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            yield neutralise(text) if "\x1b" in text else text
