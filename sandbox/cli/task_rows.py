"""Print tasks: one with its details, or a table."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from sandbox.cli.invocation import note, show_table
from sandbox.cli.terminal import is_interactive
from sandbox.cli.time_format import format_for_listing, format_local, format_relative
from sandbox.models import TaskStatus
from sandbox.store.short_ids import SHOWN_CHARACTERS
from sandbox.text import one_line

if TYPE_CHECKING:
    from sandbox.models import Task, TaskPlace
    from sandbox.store.task_table import TaskRow


def show_task(found: Task) -> None:
    """Print the details of a task on stdout."""
    click.echo(found.id)
    click.echo(f"  created   {format_local(found.created_at)} ({format_relative(found.created_at)})")
    click.echo(f"  branch    {found.branch}")
    click.echo(f"  base      {found.base_branch} at {found.base_commit[:12]}")
    click.echo(f"  head      {found.head_commit[:12]}")
    click.echo(f"  status    {found.status}")
    click.echo(f"  worktree  {found.worktree_path or _why_no_worktree(found)}")
    if found.pr_url:
        click.echo(f"  request   {found.pr_url}")
    if found.forked_from:
        click.echo(f"  fork of   {found.forked_from}")


def _why_no_worktree(found: Task) -> str:
    if found.status is TaskStatus.CLOSED:
        return "removed"
    return "none until its first check" if found.workspace_kind == "tree" else "not on this host"


def shorten_task_id(task_id: str) -> str:
    """On a terminal the beginning of an id, which each command takes; elsewhere the whole id."""
    return task_id[:SHOWN_CHARACTERS] if is_interactive(sys.stdout) else task_id


def show_tasks(found: Sequence[Task | TaskRow], *, everything: bool) -> None:
    """Print a table, newest first. Closed tasks are listed only with `everything`, else counted."""
    shown = [line for line in reversed(found) if everything or line.status is not TaskStatus.CLOSED]
    rows = [
        [shorten_task_id(t.id), t.status, format_for_listing(t.created_at), one_line(t.repo_id), one_line(t.prompt)]
        for t in shown
    ]
    show_table(["TASK", "STATUS", "CREATED", "REPOSITORY", "PROMPT"], rows)
    hidden = len(found) - len(shown)
    if hidden:
        note(f"{hidden} closed task{'' if hidden == 1 else 's'} not shown: use --all")


def describe_places(waiting: Mapping[str, TaskPlace]) -> list[str]:
    """A line for each task that no worker has; one for all of which the cluster does not say so, if it says of none."""
    if len(waiting) > 1 and all(place.state == "unknown" for place in waiting.values()):
        return [f"{len(waiting)} tasks may wait for a worker: the cluster does not say"]
    return [f"{shorten_task_id(task_id)} {describe_waiting(place)}" for task_id, place in waiting.items()]


def describe_waiting(place: TaskPlace) -> str:
    """Of a task that no worker of the cluster has, or of which the cluster does not say so."""
    if place.state == "unknown":
        return "may wait for a worker: the cluster does not say"
    where = f": about number {place.place} in the line, workers: {place.workers}" if place.place else ""
    return f"waits for a worker{where}"
