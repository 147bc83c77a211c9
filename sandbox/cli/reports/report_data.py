"""What every report is written from, and text that is safe in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import CheckRun, RunSummary, TestResult, Verdict
from sandbox.text import neutralise
from sandbox.workbench import Workbench

MOST_TESTS = 20_000
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class ReportData:
    """A summary, and what each run's own report says of its tests, by run id. Guest text is data, never markup."""

    summary: RunSummary
    tests: Mapping[str, tuple[TestResult, ...]]


def collect_tests(workbench: Workbench, summary: RunSummary) -> ReportData:
    """Read the test results that are kept of each run; a cached run may have none any more."""
    return ReportData(summary, {run.run_id: _read_tests(workbench, run) for run in summary.runs})


def _read_tests(workbench: Workbench, run: CheckRun) -> tuple[TestResult, ...]:
    found, cursor = list[TestResult](), 0
    while len(found) < MOST_TESTS:
        try:
            page = workbench.test_results(run.run_id, cursor=cursor)
        except SandboxError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
            break
        found += page.results
        if page.next_cursor is None:
            break
        cursor = page.next_cursor
    return tuple(found[:MOST_TESTS])


def plain(text: str) -> str:
    """Guest text without control sequences and without characters that XML cannot hold."""
    return _NOT_XML.sub("\ufffd", neutralise(text))


def describe_end(run: CheckRun) -> str:
    """One line: the verdict, and the cause as far as it is known."""
    cause = f": {run.cause.sentence}" if run.cause is not None and run.verdict is not Verdict.PASSED else ""
    return plain(f"{run.verdict.value}{cause}")


def tails_of(run: CheckRun) -> str:
    """The end of both streams."""
    parts = (("stdout", run.stdout_tail), ("stderr", run.stderr_tail))
    return plain("\n".join(f"{name}:\n{text}" for name, text in parts if text))
