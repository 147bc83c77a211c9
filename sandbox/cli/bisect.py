"""`sandbox bisect`."""

from __future__ import annotations

from typing import Any

import click

from sandbox.cli.invocation import Invocation, global_options, note, runtime_option
from sandbox.cli.verdicts import CheckProgress
from sandbox.models import Bisection, BisectQuery, JudgedCommit
from sandbox.text import one_line
from sandbox.workbench import VerifyOptions

_COLORS = {"good": "green", "bad": "red", "unknown": "yellow"}


@click.command()
@click.argument("repo_id", metavar="REPO")
@click.option("--good", required=True, metavar="REF", help="An older commit, branch or tag on which it passes.")
@click.option("--bad", default="HEAD", show_default=True, metavar="REF", help="A newer one on which it fails.")
@click.option("--check", "check_id", required=True, metavar="ID", help="The check.")
@click.option("--test", metavar="NAME", help="One test of its results, as `check results` names it.")
@click.option("--jobs", type=click.IntRange(1, 16), default=2, show_default=True,
              help="How many commits are judged in parallel.")  # fmt: skip
@runtime_option
@global_options
@click.pass_obj
def bisect(invocation: Invocation, /, repo_id: str, jobs: int, **query: Any) -> None:
    """Find the first commit of REPO on which a check fails, or one of its tests.

    Commits run in clean rooms, unless the verdict of their tree is known. It follows first parents, and takes for
    granted that what is bad stays bad.
    """
    options = VerifyOptions(jobs=jobs, runtime=invocation.runtime)
    watch = CheckProgress(parallel=jobs > 1).watch()
    with invocation.workbench() as workbench:
        found = workbench.bisect(repo_id, BisectQuery(**query), watch, options)
    invocation.emit(found, lambda: _show(found))


def _show(found: Bisection) -> None:
    for one in found.judged:
        click.echo(f"  {one.commit[:12]} {click.style(f'{one.outcome:<7}', fg=_COLORS[one.outcome])} {_describe(one)}")
    asked = sum(not one.cached for one in found.judged)
    note(f"{found.between} commits after {found.good[:12]}: {len(found.judged)} judged, {asked} of them ran now.")
    if found.first_bad is not None:
        click.echo(f"first bad: {found.first_bad.commit} {one_line(found.first_bad.subject)}")
    else:
        click.echo(f"the first bad commit is one of {len(found.candidates)}: those between could not be judged")
        for commit in found.candidates[:20]:
            click.echo(f"  {commit}")


def _describe(one: JudgedCommit) -> str:
    known = " (cached)" if one.cached else ""
    why = f": {one_line(one.reason)}" if one.reason else ""
    return f"{one.verdict or 'not run'}{known}{why}  {one_line(one.subject)}"
