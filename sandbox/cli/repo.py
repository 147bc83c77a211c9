"""`sandbox repo`: repositories."""

from __future__ import annotations

import click

from sandbox.cli.invocation import Invocation, global_options, note, table
from sandbox.models import CloneResult, Repository


@click.group()
def repo() -> None:
    """Clone, list and show repositories."""


@repo.command()
@click.argument("url")
@global_options
@click.pass_obj
def clone(invocation: Invocation, url: str) -> None:
    """Clone URL into the cache, or fetch what is new when it is there."""
    note("Cloning")
    with invocation.workbench() as workbench:
        result = workbench.clone(url)
    invocation.emit(result, lambda: _show_clone(result))


def _show_clone(result: CloneResult) -> None:
    _show(result.repository)
    context = result.context
    click.echo(f"  files    {context.tree_total}")
    if context.entrypoints:
        click.echo(f"  start at {', '.join(e.path for e in context.entrypoints[:8])}")


def _show(repository: Repository) -> None:
    click.echo(repository.id)
    click.echo(f"  remote   {repository.remote_url}")
    click.echo(f"  branch   {repository.default_branch}")
    click.echo(f"  profile  {repository.profile}")


@repo.command("list")
@global_options
@click.pass_obj
def list_(invocation: Invocation) -> None:
    """List registered repositories."""
    with invocation.workbench() as workbench:
        found = workbench.repositories()
    rows = [[r.id, r.profile, r.default_branch, r.remote_url] for r in found]
    invocation.emit({"repositories": found}, lambda: table(["REPOSITORY", "PROFILE", "BRANCH", "REMOTE"], rows))


@repo.command()
@click.argument("repo_id", metavar="REPO")
@global_options
@click.pass_obj
def show(invocation: Invocation, repo_id: str) -> None:
    """Show one repository."""
    with invocation.workbench() as workbench:
        found = workbench.repository(repo_id)
    invocation.emit({"repository": found}, lambda: _show(found))
