"""`sandbox storage`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sandbox.cli.gc import format_leftover
from sandbox.cli.invocation import Invocation, global_options, show_table
from sandbox.text import one_line

if TYPE_CHECKING:
    from sandbox.models.storage import Storage, StorageUse

_KIBIBYTE = 1024


@click.command()
@global_options
@click.pass_obj
def storage(invocation: Invocation) -> None:
    """Show who holds how much disk space in this home, what limits it, and what `gc` would free now.

    Bytes are allocated blocks. It only looks.
    """
    with invocation.workbench() as workbench:
        found = workbench.storage()
    invocation.emit(found, lambda: show_storage(found))


def show_storage(found: Storage) -> None:
    """Print totals, then who holds what, then what would be freed."""
    limit = f" of {format_bytes(found.max_bytes)} (storage.max_bytes)" if found.max_bytes else ", without a limit"
    click.echo(f"home         {format_bytes(found.bytes)}{limit}, {found.files:,} files")
    click.echo(f"only here    {format_bytes(found.only_here_bytes)}, which no limit removes")
    files = "" if found.free_files is None else f" and {found.free_files:,} files"
    click.echo(f"free         {format_bytes(found.free_bytes)}{files}; {format_bytes(found.min_free_bytes)} stay free")
    if found.images_note:
        click.echo(f"images       not measured: {one_line(found.images_note)}")
    click.echo()
    show_table(["HOLDS", "REPOSITORY", "SIZE", "FILES", "LIMIT", "REMOVED"], [_row(use) for use in found.uses])
    _show_owners(found)
    _show_reclaimable(found)


def _row(use: StorageUse) -> list[str]:
    limit = format_bytes(use.limit_bytes) if use.limit_bytes else ""
    size = f"{'' if use.is_complete else 'over '}{format_bytes(use.bytes)}"
    return [use.kind.value, use.repo_id or "", size, f"{use.files:,}", f"{limit} {use.limit}".strip(), use.removal]


def _show_owners(found: Storage) -> None:
    limited = [row for row in found.repositories if row.max_bytes]
    if limited:
        click.echo()
        rows = [[row.repo_id, format_bytes(row.bytes), format_bytes(row.max_bytes or 0)] for row in limited]
        show_table(["REPOSITORY", "SIZE", "LIMIT"], rows)
    if found.tasks:
        click.echo()
        tasks = [
            [
                task.task_id,
                task.status.value,
                format_bytes(task.worktree_bytes),
                format_bytes(task.disk_bytes) if task.disk_bytes else "",
                format_bytes(task.log_bytes),
            ]
            for task in found.tasks
        ]
        show_table(["TASK", "STATUS", "FILES", "ITS DISK", "LOGS"], tasks)


def _show_reclaimable(found: Storage) -> None:
    click.echo()
    if not found.reclaimable:
        click.echo("`sandbox gc` would not free any finished work now.")
    for left in found.reclaimable:
        size = f"{format_bytes(left.bytes)}  " if left.bytes else ""
        click.echo(f"{size}{format_leftover(left, dry_run=True)}")


def format_bytes(count: int) -> str:
    """A size with its unit."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < _KIBIBYTE:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= _KIBIBYTE
    return f"{size:.1f} TiB"
