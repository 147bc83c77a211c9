"""`sandbox trust`: the checks that a repository suggests."""

from __future__ import annotations

import shlex

import click

from sandbox.cli.invocation import Invocation, add_home, global_options, note
from sandbox.cli.person import describe_user
from sandbox.cli.service_rows import show_services
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Suggestion
from sandbox.text import one_line


@click.command()
@click.argument("repo_id", metavar="REPO")
@click.option("--hash", "sha256", metavar="HASH", help="Trust the suggested checks if their file has this hash.")
@click.option("--revoke", is_flag=True, help="Stop trusting all suggested checks of REPO.")
@global_options
@click.pass_obj
def trust(invocation: Invocation, repo_id: str, sha256: str | None, revoke: bool) -> None:
    """Show the checks that REPO suggests in .sandbox/checks.toml, or trust them after you have reviewed them."""
    if revoke and sha256:
        raise SandboxError(ErrorCode.INVALID_INPUT, "Give either --hash or --revoke")
    with invocation.workbench() as workbench:
        if revoke:
            found = workbench.distrust(repo_id)
        elif sha256:
            found = workbench.trust(repo_id, sha256, by=describe_user())
        else:
            found = workbench.suggestion(repo_id)
    invocation.emit({"suggestion": found}, lambda: _show(found))


def _show(found: Suggestion) -> None:
    if found.sha256 is None:
        click.echo(f"{found.repo_id} suggests no checks: its default branch has no {found.path}")
        return
    for check in found.checks:
        after = f", after {', '.join(check.requires)}" if check.requires else ""
        click.echo(f"  {check.id:<12} {one_line(shlex.join(check.argv))}  (in {one_line(check.cwd)}{after})")
    show_services(found.services)
    click.echo(f"{found.path} {found.sha256}: {'used' if found.trusted else 'not used'} beside profile {found.profile}")
    if not found.trusted:
        note(add_home(f"To use these checks: sandbox trust {found.repo_id} --hash {found.sha256}"))
