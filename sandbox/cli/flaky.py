"""`sandbox flaky`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from sandbox.cli.invocation import Invocation, global_options, note, show_table
from sandbox.cli.time_format import format_for_listing
from sandbox.models import FlakyTest
from sandbox.text import one_line


@click.group()
def flaky() -> None:
    """List or forget the tests of a repository that failed and passed on one tree."""


@flaky.command("list")
@click.argument("repo_id", metavar="REPO")
@global_options
@click.pass_obj
def list_(invocation: Invocation, repo_id: str) -> None:
    """List the flaky tests of REPO, the last seen first. RATE: the share of runs that failed."""
    with invocation.workbench() as workbench:
        found = workbench.flaky_tests(repo_id)
    rows = [
        [one_line(t.test) or "(the check)", t.check_id, f"{t.rate:.0%} of {t.ran}", format_for_listing(t.last_seen)]
        for t in found
    ]
    invocation.emit({"flaky": found}, lambda: show_table(["TEST", "CHECK", "RATE", "LAST SEEN"], rows))


@flaky.command()
@click.argument("repo_id", metavar="REPO")
@click.argument("test", metavar="[TEST]", required=False)
@click.option("--all", "everything", is_flag=True, help="All tests of the repository.")
@global_options
@click.pass_obj
def forget(invocation: Invocation, repo_id: str, test: str | None, everything: bool) -> None:
    """Forget what is known of a flaky TEST of REPO, or of all."""
    if everything is (test is not None):
        raise click.UsageError("Give either a test or --all.")
    with invocation.workbench() as workbench:
        gone = workbench.forget_flaky_tests(repo_id, test)
    invocation.emit({"forgotten": gone}, lambda: note(f"{len(gone)} flaky test(s) forgotten."))


def show_flaky(tests: Sequence[FlakyTest]) -> None:
    """Print the tests that were flaky in a verification."""
    for one in tests:
        name, word = one_line(one.test) or "the check itself", click.style("flaky", fg="yellow")
        click.echo(f"  {word} {one.check_id}: {name}: failed {one.failed} of {one.ran} runs")
        click.echo(f"      {one_line(one.remark)}")
