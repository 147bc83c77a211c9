"""`sandbox audit`: verify that the journals are unchanged, and export them as JSON lines."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from sandbox.cli.invocation import Invocation, global_options, show_table, to_json
from sandbox.text import one_line

if TYPE_CHECKING:
    from sandbox.models import AuditReport, JournalState

_AGE = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@click.group()
def audit() -> None:
    """Verify and export the journals: what was done, who did it, and who allowed it."""


@audit.command()
@global_options
@click.pass_obj
def verify(invocation: Invocation) -> int:
    """Check that no journal was edited, cut or reordered. If one was, name the first such entry and exit with 1.

    A user who can write to the home can rewrite all of it. Compare the heads with an export that is kept elsewhere.
    """
    with invocation.workbench() as workbench:
        report = workbench.audit_verify()
    invocation.emit(report, lambda: _show(report))
    return 0 if report.intact else 1


def _show(report: AuditReport) -> None:
    rows = [[one_line(j.name), str(j.entries), _state(j), (j.head or "-")[7:23]] for j in report.journals]
    show_table(["JOURNAL", "ENTRIES", "STATE", "HEAD"], rows)
    for journal in report.journals:
        if journal.broken is not None:
            where = f"line {journal.broken.line}: " if journal.broken.line else ""
            click.echo(f"{one_line(journal.name)}: {where}{journal.broken.details}")
        if journal.unchained:
            click.echo(f"{one_line(journal.name)}: its first {journal.unchained} entries were not chained when written")
    broken = sum(journal.broken is not None for journal in report.journals)
    click.echo(f"{broken} of {len(report.journals)} journals are damaged" if broken else "all journals are intact")


def _state(journal: JournalState) -> str:
    if journal.broken is not None:
        return journal.broken.damage.value
    return "removed" if journal.removed else "intact"


@audit.command()
@click.option(
    "--since",
    metavar="TIME",
    help="Start: 2026-01-31, 2026-01-31T08:00:00+01:00 (UTC if it has no zone), or an age as 90m, 12h, 7d.",
)
@click.option("--task", "task_id", metavar="TASK", help="Export only this task's journal and approvals.")
@global_options
@click.pass_obj
def export(invocation: Invocation, since: str | None, task_id: str | None) -> None:
    """Print all journal entries and decided approvals, oldest first: one JSON object per line."""
    start = _parse_time(since) if since is not None else None
    with invocation.workbench() as workbench:
        for record in workbench.audit_export(since=start, task_id=task_id):
            invocation.has_printed = True
            click.echo(to_json(record))


def _parse_time(text: str) -> datetime:
    try:
        if found := _AGE.fullmatch(text):
            return datetime.now(UTC) - timedelta(**{_UNITS[found[2]]: int(found[1])})
        parsed = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:  # the latter: before the year 1
        raise click.UsageError(f"--since: {text[:50]!r} is not a time; use for example 2026-01-31 or 7d.") from error
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
