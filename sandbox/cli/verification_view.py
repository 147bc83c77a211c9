"""Show what checks in clean rooms add up to, and find the exit code: of `verify`, and of `check wait` after it."""

from __future__ import annotations

import click

from sandbox.cli.comparison_view import show_comparison
from sandbox.cli.flaky import show_flaky
from sandbox.cli.verdicts import qualify, show_runs
from sandbox.models import Verification
from sandbox.text import neutralise


def is_accepted(result: Verification) -> bool:
    """Whether a command exits with 0: every check passed, or there are no new failures."""
    return result.verified or bool(result.no_new_failures)


def show_verification(result: Verification, owner_id: str | None) -> None:
    """Print the runs, what they add up to, and what was compared. `owner_id`: as for `show_runs`."""
    show_runs(result.runs, owner_id)  # a cached run may be of `sandbox run`
    for line in result.differences:
        click.echo(f"  {neutralise(line)}")
    word = click.style("verified", fg="green", bold=True) if result.verified else click.style("not verified", fg="red")
    click.echo(f"{word}{qualify(result.runs)}: tree {result.tree}")
    if result.rounds_passed is not None:
        click.echo(f"stopped: {result.rounds_passed} round(s) had passed, and more were asked for")
    show_flaky(result.flaky)
    if result.comparison is not None:
        show_comparison(result.comparison)
