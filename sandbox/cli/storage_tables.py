"""`sandbox storage`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sandbox.byte_sizes import format_bytes
from sandbox.cli.gc import format_leftover
from sandbox.cli.invocation import Invocation, global_options, show_table
from sandbox.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandbox.models.storage import Storage, StorageUse


@click.command()
@click.option("--all", "with_parts", is_flag=True, help="List what of each kind belongs to which repository.")
@global_options
@click.pass_obj
def storage(invocation: Invocation, with_parts: bool) -> None:
    """Show what uses how much disk space in this home, what limits it, and what `gc` would free now.

    Bytes are allocated blocks. It only looks.
    """
    with invocation.workbench() as workbench:
        found = workbench.storage()
    invocation.emit(found, lambda: show_storage(found, with_parts=with_parts))


def show_storage(found: Storage, *, with_parts: bool = False) -> None:
    """Print totals, then what uses how much, then what would be freed. `with_parts`: of each kind the repositories."""
    limit = f" of {format_bytes(found.max_bytes)} (storage.max_bytes)" if found.max_bytes else ", without a limit"
    click.echo(f"home         {format_bytes(found.bytes)}{limit}, {found.files:,} files")
    click.echo(f"only here    {format_bytes(found.only_here_bytes)}, which no limit removes")
    files = "" if found.free_files is None else f" and {found.free_files:,} files"
    click.echo(f"free         {format_bytes(found.free_bytes)}{files}; {format_bytes(found.min_free_bytes)} stay free")
    if found.images_note:
        click.echo(f"images       not measured: {one_line(found.images_note)}")
    click.echo()
    if with_parts:
        rows = [[use.kind.value, use.repo_id or "", *_cells(use)] for use in found.uses]
        show_table(["HOLDS", "REPOSITORY", "SIZE", "FILES", "LIMIT", "REMOVED"], rows)
    else:
        rows = [[use.kind.value, *_cells(use)] for use in _sum_kinds(found.uses)]
        show_table(["HOLDS", "SIZE", "FILES", "LIMIT", "REMOVED"], rows)
    _show_owners(found)
    _show_reclaimable(found)


def _sum_kinds(uses: Iterable[StorageUse]) -> list[StorageUse]:
    """One row for each kind, the largest first."""
    kinds: dict[str, StorageUse] = {}
    for use in uses:
        known = kinds.get(use.kind)
        if known is not None:
            complete = known.is_complete and use.is_complete
            both = {"bytes": known.bytes + use.bytes, "files": known.files + use.files, "is_complete": complete}
            use = known.model_copy(update=both)
        kinds[use.kind] = use
    return sorted(kinds.values(), key=lambda use: -use.bytes)


def _cells(use: StorageUse) -> list[str]:
    limit = format_bytes(use.limit_bytes) if use.limit_bytes else ""
    size = f"{'' if use.is_complete else 'over '}{format_bytes(use.bytes)}"
    return [size, f"{use.files:,}", f"{limit} {use.limit}".strip(), use.removal]


def _show_owners(found: Storage) -> None:
    if found.repositories:
        click.echo()
        largest = sorted(found.repositories, key=lambda row: -row.bytes)
        rows = [
            [row.repo_id, format_bytes(row.bytes), format_bytes(row.max_bytes) if row.max_bytes else ""]
            for row in largest
        ]
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
        show_table(["TASK", "STATUS", "FILES", "AT MOST", "LOGS"], tasks)


def _show_reclaimable(found: Storage) -> None:
    click.echo()
    if not found.reclaimable:
        click.echo("`sandbox gc` would not free any finished work now.")
    for left in found.reclaimable:
        size = f"{format_bytes(left.bytes)}  " if left.bytes else ""
        click.echo(f"{size}{format_leftover(left, dry_run=True)}")
