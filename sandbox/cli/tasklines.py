"""How a task is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sandbox.models import Task


def show_task(found: Task) -> None:
    """A few lines on stdout."""
    click.echo(found.id)
    click.echo(f"  branch    {found.branch}")
    click.echo(f"  base      {found.base_branch} at {found.base_commit[:12]}")
    click.echo(f"  head      {found.head_commit[:12]}")
    click.echo(f"  status    {found.status}")
    click.echo(f"  worktree  {found.worktree_path or 'removed'}")
    if found.pr_url:
        click.echo(f"  request   {found.pr_url}")
    if found.forked_from:
        click.echo(f"  fork of   {found.forked_from}")
