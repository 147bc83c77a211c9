"""`sandbox task snapshot|snapshots|restore|clean|fork|log`: the saved states of a task, and its journal."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

import click

from sandbox.cli.invocation import Invocation, add_home, global_options, note, show_table
from sandbox.cli.task_rows import show_task
from sandbox.cli.time_format import format_for_listing
from sandbox.text import neutralise, one_line

if TYPE_CHECKING:
    from sandbox.models import CleanResult, JournalEntry, RestoreResult, Snapshot


@click.command()
@click.argument("task_id", metavar="TASK")
@click.option("--label", default="", help="Label of the snapshot.")
@global_options
@click.pass_obj
def snapshot(invocation: Invocation, task_id: str, label: str) -> None:
    """Save the working state of TASK, to restore it later or to fork from it."""
    with invocation.workbench() as workbench:
        taken = workbench.snapshot(task_id, label)
    invocation.emit(taken, lambda: _show_taken(taken))


def _show_taken(taken: Snapshot) -> None:
    click.echo(taken.id)
    for path in taken.rejected:
        note(f"left out: {one_line(path)}")


@click.command()
@click.argument("task_id", metavar="TASK")
@global_options
@click.pass_obj
def snapshots(invocation: Invocation, task_id: str) -> None:
    """List the snapshots of TASK, oldest first."""
    with invocation.workbench() as workbench:
        found = workbench.snapshots(task_id)
    rows = [[s.id, format_for_listing(s.created_at), s.tree[:12], neutralise(s.label)] for s in found]
    invocation.emit({"snapshots": found}, lambda: show_table(["SNAPSHOT", "TAKEN", "TREE", "LABEL"], rows))


@click.command()
@click.argument("task_id", metavar="TASK")
@click.argument("snapshot_id", metavar="SNAPSHOT|head|base")
@global_options
@click.pass_obj
def restore(invocation: Invocation, task_id: str, snapshot_id: str) -> None:
    """Set the files of TASK to one of its snapshots, or to its head or base commit.

    The current state is saved as a snapshot first. Ignored files are kept. The branch does not move.
    """
    with invocation.workbench() as workbench:
        restored = workbench.restore(task_id, snapshot_id)
    invocation.emit(restored, lambda: _show_restored(restored))


def _show_restored(restored: RestoreResult) -> None:
    click.echo(f"restored tree {restored.tree[:12]}: {len(restored.changes)} uncommitted change(s)")
    click.echo(f"  before it  {restored.previous.id}")


@click.command()
@click.argument("task_id", metavar="TASK")
@click.option("--without", multiple=True, metavar="PATH", help="Also delete this new file or folder. Repeatable.")
@click.option("--discard", is_flag=True, help="Delete all uncommitted changes, too.")
@global_options
@click.pass_obj
def clean(invocation: Invocation, task_id: str, without: tuple[str, ...], discard: bool) -> None:
    """Delete the files of TASK that a commit would not contain: build output, ignored files, special files.

    Uncommitted changes are kept, and saved as a snapshot first. The task's container is removed, too.
    """
    with invocation.workbench() as workbench:
        cleaned = workbench.clean_task(task_id, without, discard=discard)
    invocation.emit(cleaned, lambda: _show_cleaned(cleaned))


def _show_cleaned(cleaned: CleanResult) -> None:
    click.echo(f"clean at tree {cleaned.tree[:12]}: {len(cleaned.changes)} uncommitted change(s)")
    if cleaned.previous is not None:
        click.echo(f"  saved as   {cleaned.previous.id}")


@click.command()
@click.argument("task_id", metavar="TASK")
@click.option("--snapshot", "snapshot_id", help="Snapshot to start from. Default: the current working state.")
@click.option("--prompt", help="Purpose of the new task. Default: that of TASK.")
@click.option("--with-artifacts", is_flag=True, help="Also copy the build output that the profile ignores.")
@global_options
@click.pass_obj
def fork(
    invocation: Invocation, task_id: str, snapshot_id: str | None, prompt: str | None, with_artifacts: bool
) -> None:
    """Create a task that continues from a state of TASK on its own branch."""
    with invocation.workbench() as workbench:
        made = workbench.fork_task(task_id, snapshot_id, prompt, with_artifacts=with_artifacts)
        workbench.use_task(made.id)
    invocation.emit({"task": made}, lambda: show_task(made))


@click.command()
@click.argument("task_id", metavar="TASK")
@click.option("--limit", type=click.IntRange(min=1), default=1000, show_default=True,
              help="Maximum number of operations to show, the newest ones.")  # fmt: skip
@global_options
@click.pass_obj
def log(invocation: Invocation, task_id: str, limit: int) -> None:
    """Show the operations on TASK, oldest first, including refused ones."""
    with invocation.workbench() as workbench:
        found = workbench.log(task_id, limit=limit + 1)
    entries = found[-limit:]
    if len(found) > limit:
        note(
            add_home(
                f"older operations are left out: `--limit` shows more, `sandbox audit export --task {task_id}` all"
            )
        )
    head = ["AT", "ACTOR", "WHO", "OPERATION", "ALLOWED", "RESULT", "SECONDS", "ABOUT"]
    invocation.emit({"entries": entries}, lambda: show_table(head, [_row(e) for e in entries]))


def _row(entry: JournalEntry) -> list[str]:
    about = neutralise(" ".join(entry.names)).replace("\n", " ")
    return [
        format_for_listing(entry.at),
        entry.actor.value,
        _format_caller(entry),
        entry.operation,
        _format_permission(entry),
        entry.result,
        f"{entry.duration_s:.2f}",
        about,
    ]


def _format_caller(entry: JournalEntry) -> str:
    """The system user, and the client or program that acted for this user."""
    if entry.by is None:
        return "-"
    acted = entry.by.client or PurePath(entry.by.program).name
    return one_line(f"{entry.by.user}{f' by {acted}' if acted else ''}")[:40]


def _format_permission(entry: JournalEntry) -> str:
    """How an agent's call was allowed: by the policy, by `--approvals auto`, or by which approval."""
    if entry.allowed is None:
        return "-"
    return f"{entry.allowed.how} {entry.allowed.approval_id}".rstrip()
