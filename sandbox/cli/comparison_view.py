"""Show how the checks of a tree compare with those of another one."""

from __future__ import annotations

from collections.abc import Iterator

import click

from sandbox.models import CheckComparison, TestChange, TreeComparison
from sandbox.models.words import TestChangeKind
from sandbox.text import one_line

_SHOWN = 20  # changes of one check: a screen
_COLORS = {
    TestChangeKind.NEWLY_FAILING: "red",
    TestChangeKind.MISSING: "red",
    TestChangeKind.FLAKY: "yellow",
    TestChangeKind.NEWLY_PASSING: "green",
}


def show_comparison(found: TreeComparison) -> None:
    """Print each check with its changes, the worst first, and what it adds up to."""
    click.echo(f"against {one_line(found.against)}: commit {found.commit[:12]}, tree {found.tree[:12]}")
    for check in found.checks:
        click.echo(f"  {check.check_id:<10} {_describe_check(check)}")
        if check.coverage is not None:
            click.echo(f"      coverage      {check.coverage.describe()}")
        for line in _list_changes(check):
            click.echo(f"      {line}")
        for reason in check.reasons:
            click.echo(f"      {click.style('new failure', fg='red')}: {one_line(reason)}")
    word = click.style("no new failures", fg="green", bold=True) if found.no_new_failures else None
    click.echo(word or click.style("new failures", fg="red"))


def describe_kind(kind: TestChangeKind) -> str:
    """A kind of change, for people."""
    return kind.value.replace("_", " ")


def _describe_check(check: CheckComparison) -> str:
    before, after = (verdict.value if verdict else "not run" for verdict in (check.before, check.after))
    counted = ", ".join(f"{count:,} {describe_kind(kind)}" for kind, count in check.counts.items())
    known = " (cached)" if check.before_cached else ""
    return f"{before}{known} -> {after}" + (f": {counted}" if counted else "")


def _list_changes(check: CheckComparison) -> Iterator[str]:
    shown = [change for change in check.changes if change.change is not TestChangeKind.NEW]
    for change in shown[:_SHOWN]:
        yield f"{click.style(f'{describe_kind(change.change):<13}', fg=_COLORS.get(change.change))} {_describe(change)}"
    total = sum(count for kind, count in check.counts.items() if kind is not TestChangeKind.NEW)
    if total > _SHOWN:
        yield f"and {total - _SHOWN:,} more"


def _describe(change: TestChange) -> str:
    place = "" if change.path is None else f" ({one_line(change.path)}{f':{change.line}' if change.line else ''})"
    again = "" if change.ran is None else f" [failed {change.failed} of {change.ran} runs on this tree]"
    lines = (change.message or "").splitlines()
    return f"{one_line(change.test)}{place}{again}{f': {lines[0]}' if lines else ''}"
