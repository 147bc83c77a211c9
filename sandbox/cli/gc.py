"""`sandbox gc`: remove what killed controllers left behind, and finished work beyond the settings `keep.*`."""

from __future__ import annotations

import click

from sandbox.cli.invocation import Invocation, add_home, global_options
from sandbox.models import Leftover, LeftoverAction, Reconciliation
from sandbox.text import one_line

_COLORS = {LeftoverAction.KEPT: "yellow", LeftoverAction.BUSY: "yellow", LeftoverAction.FAILED: "red"}
_NOT_REMOVED = {LeftoverAction.KEPT, LeftoverAction.BUSY, LeftoverAction.FAILED}


@click.command()
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
@click.option(
    "--forget", "refs", multiple=True, metavar="REF|TASK",
    help="Permanently delete this rescued work or snapshot, or all of a closed task; skip all other actions. "
    "Repeatable.",
)  # fmt: skip
@global_options
@click.pass_obj
def gc(invocation: Invocation, dry_run: bool, refs: tuple[str, ...]) -> int:
    """Remove containers, clean rooms, worktrees, mounts and files that killed controllers left behind.

    Also removes finished work beyond the settings `keep.*` and `storage.*`, and packs cache clones that changed.

    Work that exists only here is saved to a ref first, or is kept and named. Exits with 5 when an action failed.
    """
    if dry_run and refs:
        raise click.UsageError("Give either --dry-run or --forget.")
    with invocation.workbench() as workbench:
        found = workbench.forget_kept(refs) if refs else workbench.collect(dry_run=dry_run)
    invocation.emit(found, lambda: show_leftovers(found))
    return 5 if any(left.action is LeftoverAction.FAILED for left in found.leftovers) else 0


def show_leftovers(found: Reconciliation) -> None:
    """Print one line for each leftover."""
    for left in found.leftovers:
        click.echo(format_leftover(left, dry_run=found.dry_run))
    actions = {left.action for left in found.leftovers}
    if LeftoverAction.BUSY in actions:
        click.echo("Some of it is in use: run `sandbox gc` again later.")
    elif actions <= {LeftoverAction.KEPT}:
        click.echo("No other leftovers were found." if actions else "No leftovers were found.")


def format_leftover(left: Leftover, *, dry_run: bool) -> str:
    """One leftover, and what is done with it."""
    word = f"would be {left.action.value}" if dry_run and left.action not in _NOT_REMOVED else left.action.value
    note = f"  ({add_home(one_line(left.note))})" if left.note else ""
    return f"{click.style(word, fg=_COLORS.get(left.action, 'green'))} {left.kind} {one_line(left.name)}{note}"
