"""Markdown for a step summary or a comment. Guest text is inert: it makes no link, mention or command."""

from __future__ import annotations

from sandbox.checks.missing_packages import WITHOUT, describe_missing_packages
from sandbox.cli.reports.findings import ReportedFailure, find_failures
from sandbox.cli.reports.report_data import ReportData
from sandbox.cli.verdicts import describe_run
from sandbox.forges.escape import as_code, as_prose
from sandbox.models import CheckRun, RunSummary, Verdict

_MOST_FAILURES = 50


def write_markdown(data: ReportData) -> str:
    """The report as text."""
    summary = data.summary
    lacks = describe_missing_packages(summary.runs)
    word = f"{_conclude(summary)}, {WITHOUT}" if lacks else _conclude(summary)
    rows = [
        f"### Space Sandbox: {word}",
        "",
        f"Tree {as_code(summary.tree)} of commit {as_code(summary.commit)}, profile {as_code(summary.profile)}.",
        "",
        "| Check | Verdict | Time | |",
        "|---|---|---|---|",
        *map(_write_row, summary.runs),
    ]
    if summary.left_out:
        rows += ["", f"Not run: {', '.join(map(as_code, summary.left_out))}."]
    if lacks:
        rows += ["", *(f"- {as_prose(line)}" for line in lacks)]
    failures = find_failures(data)
    if failures:
        rows += ["", f"#### Failures ({len(failures)})", "", *map(_write_failure, failures[:_MOST_FAILURES])]
    if len(failures) > _MOST_FAILURES:
        rows.append(f"- and {len(failures) - _MOST_FAILURES} more")
    return "\n".join(rows) + "\n"


def _conclude(summary: RunSummary) -> str:
    if summary.nothing_changed:
        return "no project has changed, no check had to run"
    if not summary.verified:
        return "not verified"
    return "passed" if summary.left_out else "verified"


def _write_row(run: CheckRun) -> str:
    mark = "\u2705" if run.verdict is Verdict.PASSED else "\u274c"
    figures = as_prose(describe_run(run).strip().strip("()")).replace("|", "\\|")
    return f"| {as_code(run.check_id)} | {mark} {run.verdict.value} | {run.wall_time_s:.1f} s | {figures} |"


def _write_failure(found: ReportedFailure) -> str:
    place = f" ({as_code(found.path + (f':{found.line}' if found.line else ''))})" if found.path else ""
    return f"- {as_code(found.check_id)} {as_code(found.title)}{place}: {as_prose(found.message.partition(chr(10))[0])}"
