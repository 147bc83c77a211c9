"""`sandbox gc`: do away with what killed controllers left."""

from __future__ import annotations

import click

from sandbox.cli.invocation import Invocation, copyable, global_options
from sandbox.models import Leftover, Reconciliation, Tidying
from sandbox.text import one_line

_COLORS = {Tidying.KEPT: "yellow", Tidying.BUSY: "yellow", Tidying.FAILED: "red"}
_STAYS = {Tidying.KEPT, Tidying.BUSY, Tidying.FAILED}


@click.command()
@click.option("--dry-run", is_flag=True, help="Only tell what would be done.")
@click.option(
    "--forget", "refs", multiple=True, metavar="REF",
    help="Lose this rescued work or snapshot for good, and do nothing else; repeatable.",
)  # fmt: skip
@global_options
@click.pass_obj
def gc(invocation: Invocation, dry_run: bool, refs: tuple[str, ...]) -> int:
    """Remove containers, clean rooms, worktrees, mounts and files that killed controllers left.

    Work that is nowhere else is kept under a ref first, or stays and is named. Exits 5 when something failed.
    """
    if dry_run and refs:
        raise click.UsageError("Give either --dry-run or --forget.")
    with invocation.workbench() as workbench:
        found = workbench.forget_kept(refs) if refs else workbench.collect(dry_run=dry_run)
    invocation.emit(found, lambda: _show(found))
    return 5 if any(left.action is Tidying.FAILED for left in found.leftovers) else 0


def _show(found: Reconciliation) -> None:
    for left in found.leftovers:
        click.echo(_line(left, dry_run=found.dry_run))
    actions = {left.action for left in found.leftovers}
    if Tidying.BUSY in actions:
        click.echo("Somebody works there: run it again later for what is busy.")
    elif actions <= {Tidying.KEPT}:
        click.echo("Nothing else to do." if actions else "Nothing to do.")


def _line(left: Leftover, *, dry_run: bool) -> str:
    word = f"would be {left.action.value}" if dry_run and left.action not in _STAYS else left.action.value
    note = f"  ({copyable(one_line(left.note))})" if left.note else ""
    return f"{click.style(word, fg=_COLORS.get(left.action, 'green'))} {left.kind} {one_line(left.name)}{note}"
