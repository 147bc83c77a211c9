"""`sandbox trust`: what a repository suggests for its checks."""

from __future__ import annotations

import shlex

import click

from sandbox.cli.invocation import Invocation, add_home, global_options, note, show_examples
from sandbox.cli.person import describe_user
from sandbox.cli.service_rows import show_services
from sandbox.cli.suggestion_rows import (
    SHOWN_OF_CHECK,
    show_notes,
    show_packages,
    show_parts,
    show_rest,
    spell_out_lines,
)
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Suggestion
from sandbox.text import spell_out
from sandbox.workbench import Workbench


@show_examples(
    ("sandbox trust REPO", "show what the repository suggests, and the hash"),
    ("sandbox trust REPO --hash SHA256", "let exactly these checks run"),
)
@click.command()
@click.argument("repo_id", metavar="REPO")
@click.option("--hash", "hashes", metavar="HASH", multiple=True, help="Trust what has this hash. Repeat for more.")
@click.option("--revoke", is_flag=True, help="Stop trusting everything that REPO suggests.")
@global_options
@click.pass_obj
def trust(invocation: Invocation, repo_id: str, hashes: tuple[str, ...], revoke: bool) -> None:
    """Show what REPO suggests for its checks, or trust it after you have reviewed it.

    Reads .sandbox/checks.toml, CI workflows, devcontainer.json, mise.toml, .tool-versions and debian/control.
    """
    if revoke and hashes:
        raise SandboxError(ErrorCode.INVALID_INPUT, "Give either --hash or --revoke")
    with invocation.workbench() as workbench:
        if revoke:
            found = workbench.distrust(repo_id)
        elif hashes:
            found = _trust_all(workbench, repo_id, hashes)
        else:
            found = workbench.suggestion(repo_id)
    if revoke:
        note(f"revoked: no suggestion of {repo_id} is used any more")
    invocation.emit({"suggestion": found}, lambda: _show(found))


def _trust_all(workbench: Workbench, repo_id: str, hashes: tuple[str, ...]) -> Suggestion:
    for each in hashes:
        found = workbench.trust(repo_id, each, by=describe_user())
    return found


def _show(found: Suggestion) -> None:
    if found.sha256 is None and not found.parts and not found.notes:
        click.echo(
            f"{found.repo_id} has no suggestions: its default branch lacks a {found.path}, CI workflow or the like"
        )
        return
    if found.sha256 is not None:
        _show_file(found)
    show_parts(found.parts)
    show_notes(found.notes)
    open_ones = [part.sha256 for part in found.parts if not part.trusted]
    if found.sha256 is not None and not found.trusted:
        open_ones.insert(0, found.sha256)
    if open_ones:
        note(add_home(f"To use what has a hash: sandbox trust {found.repo_id} --hash {open_ones[0]}"))


def _show_file(found: Suggestion) -> None:
    show_packages(found.packages)
    for check in found.checks:
        after = f", after {', '.join(check.requires)}" if check.requires else ""
        click.echo(f"  {check.id:<12} {spell_out_lines(shlex.join(check.argv))}  (in {spell_out(check.cwd)}{after})")
        show_rest(check, SHOWN_OF_CHECK)
    show_services(found.services)
    for name, project in found.projects.items():
        place = f"{spell_out(project.subpath) or '.'}/ ({project.profile or 'profile as detected'})"
        given = [f"{key}={value}" for table in (project.limits, project.env) for key, value in table.items()]
        click.echo(f"  project {name}: {place}{f'  with {spell_out(shlex.join(given))}' if given else ''}")
    click.echo(f"{found.path} {found.sha256}: {'used' if found.trusted else 'not used'} beside profile {found.profile}")
