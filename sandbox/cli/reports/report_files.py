"""`--report KIND=FILE`: the kinds, and writing them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from sandbox.cli.invocation import note
from sandbox.cli.reports.junit import write_junit
from sandbox.cli.reports.markdown import write_markdown
from sandbox.cli.reports.report_data import ReportData
from sandbox.cli.reports.sarif import write_code_quality, write_sarif
from sandbox.errors import ErrorCode, SandboxError, describe_briefly
from sandbox.workbench import Workbench


def write_outputs(data: ReportData) -> str:
    """`NAME=value` lines, as step outputs of GitHub Actions and dotenv reports of GitLab: only words of ours."""
    summary = data.summary
    facts = {
        "verified": str(summary.verified and not summary.left_out).lower(),
        "passed": str(summary.verified or summary.nothing_changed).lower(),
        "nothing_changed": str(summary.nothing_changed).lower(),
        "tree": summary.tree,
        "commit": summary.commit,
        "packages_missing": str(any(run.missing_packages for run in summary.runs)).lower(),
        "failed": ",".join(run.check_id for run in summary.runs if run.verdict != "passed"),
    }
    return "".join(f"{name}={value}\n" for name, value in facts.items())


_WRITERS: dict[str, Callable[[ReportData], str]] = {
    "codequality": write_code_quality,
    "junit": write_junit,
    "markdown": write_markdown,
    "outputs": write_outputs,
    "sarif": write_sarif,
}
KINDS = (*_WRITERS, "receipt")
"""`receipt`: a signed receipt of the verdicts."""


def parse_reports(values: Sequence[str]) -> list[tuple[str, Path]]:
    """KIND and FILE of each value. Raises: UsageError for an unknown kind or a folder that does not exist."""
    found = []
    for value in values:
        kind, _, name = value.partition("=")
        if kind not in KINDS or not name:
            raise click.UsageError(f"--report: {value[:100]!r} is not KIND=FILE; kinds: {', '.join(KINDS)}.")
        if not Path(name).parent.is_dir():
            raise click.UsageError(f"--report: there is no directory {Path(name).parent}")
        found.append((kind, Path(name)))
    return found


def require_signing_key(workbench: Workbench, wanted: Sequence[tuple[str, Path]]) -> None:
    """Refuse a key that could not sign the receipt, before any check runs. Raises: `invalid_input`, `conflict`."""
    if any(kind == "receipt" for kind, _ in wanted):
        workbench.require_signing_key()


def write_reports(workbench: Workbench, data: ReportData, wanted: Sequence[tuple[str, Path]]) -> None:
    """Write each report; of no verdict there is no receipt. One that fails keeps no other from being written.

    Raises, at the end, the error of the first that failed: `invalid_input` for a file that cannot be written; as
    `export_receipt`.
    """
    failed = list[SandboxError]()
    for kind, path in wanted:
        if kind == "receipt" and data.summary.nothing_changed:
            note(f"{path} is not written: no check ran, so there is no verdict to sign")
            continue
        try:
            _write_report(workbench, data, kind, path)
        except SandboxError as error:
            failed.append(error)
    for other in failed[1:]:
        note(f"note: another report failed: {describe_briefly(other)}")
    if failed:
        raise failed[0]


def _write_report(workbench: Workbench, data: ReportData, kind: str, path: Path) -> None:
    text = workbench.export_receipt(data.summary).envelope + "\n" if kind == "receipt" else _WRITERS[kind](data)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT, f"The report {path} cannot be written", details=error.strerror or ""
        ) from error
