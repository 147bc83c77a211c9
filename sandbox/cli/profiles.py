"""`sandbox profiles`."""

from __future__ import annotations

import shlex

import click

from sandbox.cli.invocation import Invocation, global_options, note, show_table
from sandbox.profiles import Profile


@click.group()
def profiles() -> None:
    """List and show profiles of repositories."""


@profiles.command("list")
@global_options
@click.pass_obj
def list_(invocation: Invocation) -> None:
    """List all profiles."""
    with invocation.workbench() as workbench:
        found = workbench.profiles()
    invocation.emit({"profiles": found}, lambda: _show_all(found))


def _show_all(found: tuple[Profile, ...]) -> None:
    rows = [[p.name, p.image or "-", ", ".join(c.id for c in p.checks) or "-", p.label or "broken"] for p in found]
    show_table(["PROFILE", "IMAGE", "CHECKS", "WHAT"], rows)
    for profile in found:
        if profile.problem:
            note(f"The profile {profile.source} cannot be used: {profile.problem}")


@profiles.command()
@click.argument("name")
@global_options
@click.pass_obj
def show(invocation: Invocation, name: str) -> None:
    """Show a profile with its image and checks."""
    with invocation.workbench() as workbench:
        found = workbench.profile(name)
    invocation.emit({"profile": found}, lambda: _show(found))


def _show(found: Profile) -> None:
    click.echo(f"{found.name}: {found.label}")
    click.echo(f"  image  {found.image}")
    for check in found.checks:
        click.echo(f"  check  {check.id}: {shlex.join(check.argv)}  (timeout {check.timeout_s:g} s)")
        for name, value in check.env.items():
            click.echo(f"         {name}={value}")
