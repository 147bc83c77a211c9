"""Failures with their places in files, for SARIF, code quality and annotations."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from sandbox.cli.reports.report_data import ReportData, describe_end, plain
from sandbox.errors import SandboxError
from sandbox.models import Verdict
from sandbox.policy.paths import parse_repo_path

MOST_FINDINGS = 1000


@dataclass(frozen=True)
class ReportedFailure:
    """One failing test, or a check that did not pass without naming one. `path`: relative to the repository."""

    check_id: str
    title: str
    message: str
    path: str | None = None
    line: int | None = None

    @property
    def fingerprint(self) -> str:
        """The same for the same failure of another run."""
        return hashlib.sha256(f"{self.check_id}\0{self.title}\0{self.path}".encode()).hexdigest()


def find_failures(data: ReportData) -> list[ReportedFailure]:
    """The failures of all checks that did not pass, at most `MOST_FINDINGS`."""
    return [found for found, _ in zip(_list_failures(data), range(MOST_FINDINGS), strict=False)]


def _list_failures(data: ReportData) -> Iterator[ReportedFailure]:
    for run in data.summary.runs:
        if run.verdict is Verdict.PASSED:
            continue
        for failure in run.failures:
            message = plain(failure.message) or run.verdict.value
            path = _safe_path(failure.path)
            yield ReportedFailure(run.check_id, plain(failure.test), message, path, failure.line if path else None)
        if not run.failures:
            yield ReportedFailure(run.check_id, run.check_id, describe_end(run))


def _safe_path(text: str | None) -> str | None:
    """A path of the repository; None for any other text of a guest."""
    try:
        return None if text is None else str(parse_repo_path(text))
    except SandboxError:
        return None
