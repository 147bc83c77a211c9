"""`sandbox pool`: spare tasks that are made ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sandbox.cli.invocation import Invocation, add_home, global_options, note, show_table
from sandbox.cli.time_format import format_for_listing
from sandbox.text import one_line

if TYPE_CHECKING:
    from sandbox.models import Pool, Task


@click.group()
def pool() -> None:
    """Manage spare tasks, made ahead with a worktree and a started container, taken over by `task create`.

    The setting `pool.size` says how many there are; `sandbox serve` keeps them.
    """


@pool.command("list")
@global_options
@click.pass_obj
def list_spares(invocation: Invocation) -> None:
    """List the spare tasks."""
    with invocation.workbench() as workbench:
        found = workbench.pool()
    invocation.emit({"spares": found}, lambda: _show(found))


@pool.command()
@global_options
@click.pass_obj
def fill(invocation: Invocation) -> int:
    """Make spare tasks until there are `pool.size`, and close those that are out of date, as `sandbox serve` does.

    Exits with 1 if one could not be made, or has no container.
    """
    with invocation.workbench() as workbench:
        if not workbench.settings.pool.size:
            note("pool.size is 0: set it in config.toml, or SANDBOX_POOL_SIZE")
        found = workbench.fill_pool()
        if workbench.settings.pool.size and not (found.spares or found.problems):
            note(
                add_home("Spares are of repositories that have had a task: create the first with `sandbox task create`")
            )
    invocation.emit(found, lambda: _show_change(found))
    return 1 if found.problems else 0


@pool.command()
@global_options
@click.pass_obj
def drain(invocation: Invocation) -> None:
    """Close all spare tasks. `sandbox serve` makes new ones unless `pool.size` is 0."""
    with invocation.workbench() as workbench:
        found = workbench.drain_pool()
    invocation.emit(found, lambda: _show_change(found))


def _show(spares: tuple[Task, ...]) -> None:
    rows = [[spare.id, spare.repo_id, spare.base_commit[:12], format_for_listing(spare.created_at)] for spare in spares]
    show_table(["SPARE", "REPOSITORY", "BASE", "SINCE"], [[one_line(cell) for cell in row] for row in rows])


def _show_change(found: Pool) -> None:
    _show(found.spares)
    note(f"{len(found.made)} made, {len(found.closed)} closed")
    for name, why in found.problems.items():
        note(f"{one_line(name)}: {one_line(why)}")
