"""`sandbox task`, and `diff` and `status`, which are also top-level commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sandbox.cli.invocation import Invocation, global_options, note, show_examples, show_table
from sandbox.cli.move_task import apply_, checkout, sync
from sandbox.cli.snapshots import clean, fork, log, restore, snapshot, snapshots
from sandbox.cli.task_rows import describe_places, show_task, show_tasks
from sandbox.cli.time_format import format_relative
from sandbox.errors import SandboxError
from sandbox.text import neutralise_lines, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandbox.models import Change, Diff, DiffFile, Impact, Status, Task, TaskPlace
    from sandbox.store.task_table import TaskRow
    from sandbox.workbench import Workbench


@click.group()
def task() -> None:
    """Create, list, inspect and close tasks."""


@show_examples(
    ('sandbox task create REPO --prompt "Fix the login"', "from the default branch"),
    ("sandbox task create REPO --ref pr/7 --branch fix-login", "from a pull request"),
)
@task.command()
@click.argument("repo_id", metavar="REPO")
@click.option("--prompt", default="", help="Purpose of the task; part of its branch name.")
@click.option(
    "--base", "--ref", "base_branch",
    help="Branch, tag, commit id or pr/NUMBER to start from. Default: the default branch.",
)  # fmt: skip
@click.option(
    "--kind",
    type=click.Choice(["worktree", "tree"]),
    default="worktree",
    help="How the task keeps its files; tree: none on disk until its first check.",
)
@click.option("--from-snapshot", help="Snapshot of any task of REPO to start from, instead of --base.")
@click.option(
    "--branch", metavar="WORDS", help="Words of the branch's name, as in space-agent/45c2abc0-WORDS, not the prompt's."
)
@click.option("--profile", help="Use this profile for the task instead of the repository's.")
@click.option("--offline", is_flag=True, help="Do not fetch first: start from what the last fetch brought.")
@global_options
@click.pass_obj
def create(invocation: Invocation, /, repo_id: str, offline: bool, **start: str | None) -> None:
    """Create a task on REPO with its own branch and worktree. New commits of the remote are fetched first."""
    from sandbox.models import TaskOptions  # noqa: PLC0415 - other commands here load no model

    with invocation.workbench() as workbench:
        if offline and (fetched := workbench.fetched_at(repo_id)):
            note(f"note: offline; the last fetch of {repo_id} was {format_relative(fetched)}")
        made = workbench.create_task(
            repo_id,
            start["prompt"] or "",
            start["base_branch"],
            from_snapshot=start["from_snapshot"],
            options=TaskOptions(
                profile=start["profile"], workspace_kind=start["kind"] or "worktree", branch=start["branch"]
            ),
            fetch=not offline,
        )
        workbench.use_task(made.id)
    invocation.emit({"task": made}, lambda: show_task(made))


@click.command("list")
@click.argument("repo_id", metavar="[REPO]", required=False)
@click.option("--all", "everything", is_flag=True, help="Also list closed tasks; --json always does.")
@global_options
@click.pass_obj
def list_(invocation: Invocation, repo_id: str | None, everything: bool) -> None:
    """List open tasks, newest first: all of them, or those of REPO."""
    found: Sequence[Task | TaskRow]
    with invocation.workbench() as workbench:
        found = workbench.tasks(repo_id) if invocation.json else workbench.task_lines(repo_id)
        waiting = _find_waiting(workbench, found) if workbench.has_cluster else {}
    document = {"tasks": found, **({"waiting": waiting} if waiting else {})}
    invocation.emit(document, lambda: show_tasks(found, everything=everything))
    for line in describe_places(waiting):
        note(line)


def _find_waiting(workbench: Workbench, found: Sequence[Task | TaskRow]) -> Mapping[str, TaskPlace]:
    from sandbox.models import TaskStatus  # noqa: PLC0415 - other commands here load no model
    from sandbox.models.workers import select_waiting  # noqa: PLC0415

    return select_waiting(workbench.places([one.id for one in found if one.status is not TaskStatus.CLOSED]))


@click.command()
@click.argument("task_id", metavar="TASK")
@global_options
@click.pass_obj
def use(invocation: Invocation, task_id: str) -> None:
    """Let `-` stand for TASK in this terminal. Creating or forking a task does the same."""
    with invocation.workbench() as workbench:
        found = workbench.use_task(task_id)
    invocation.emit({"task": found}, lambda: show_task(found))


@task.command()
@click.argument("task_id", metavar="TASK")
@global_options
@click.pass_obj
def show(invocation: Invocation, task_id: str) -> None:
    """Show a task."""
    with invocation.workbench() as workbench:
        found = workbench.task(task_id)
    invocation.emit({"task": found}, lambda: show_task(found))


@task.command()
@click.argument("task_id", metavar="TASK")
@click.option("--delete", is_flag=True, help="Also delete the worktree; refused if it has uncommitted changes.")
@click.option("--discard", is_flag=True, help="With --delete: delete uncommitted changes, too.")
@global_options
@click.pass_obj
def close(invocation: Invocation, task_id: str, delete: bool, discard: bool) -> None:
    """Close TASK and unmount its worktree. Its branch on the remote is kept."""
    with invocation.workbench() as workbench:
        left = 0 if delete else _count_uncommitted(workbench, task_id)
        closed = workbench.close_task(task_id, delete_worktree=delete, discard=discard)
        kept = workbench.find_local_branch(closed.id) if delete else None
    invocation.emit({"task": closed}, lambda: show_task(closed))
    if left:
        note(
            f"note: {left} uncommitted change(s) stay in the worktree, and can no longer be committed; "
            f"`sandbox diff {closed.id}` prints them, `sandbox task close {closed.id} --delete --discard` deletes them"
        )
    if kept:
        note(
            f"note: the local branch {kept} was kept: commits or snapshots of this task exist only there; "
            f"`sandbox gc --forget {closed.id}` deletes the snapshots"
        )


def _count_uncommitted(workbench: Workbench, task_id: str) -> int:
    """Before the task is closed: to look later would mount its files again. 0 if they cannot be read."""
    try:
        return len(workbench.status(task_id).changes)
    except SandboxError:
        return 0


@click.command()
@click.argument("task_id", metavar="TASK")
@global_options
@click.pass_obj
def status(invocation: Invocation, task_id: str) -> None:
    """Show what TASK changed since its last commit."""
    with invocation.workbench() as workbench:
        found = workbench.status(task_id)
    invocation.emit(found, lambda: _show_status(found))


def _show_status(found: Status) -> None:
    click.echo(f"on {found.branch}, {found.ahead} commit(s) ahead of {found.base_commit[:12]}")
    for change in found.changes:
        click.echo(f"  {change.kind.value:<12} {_format_path(change)}")
    for path in found.rejected:
        click.echo(f"  {'rejected':<12} {one_line(path)}  (never committed)")
    if not found.changes:
        click.echo("  no uncommitted changes")
    _note_running(found)


def _note_running(found: Status | Diff) -> None:
    if found.running:
        note(f"note: running now: {', '.join(found.running)}; files may still change")


def _format_path(change: Change | DiffFile) -> str:
    """The path of a change; both paths of a rename."""
    return f"{one_line(change.old_path)} -> {one_line(change.path)}" if change.old_path else one_line(change.path)


@show_examples(
    ("sandbox diff -", "all that the task changed"),
    ("sandbox diff TASK --against head", "only what is not committed"),
    ("sandbox diff TASK --stat", "the changed files, with added and removed lines"),
)
@click.command()
@click.argument("task_id", metavar="TASK")
@click.option(
    "--against", type=click.Choice(["base", "head"]), default="base", help="Compare with the base or last commit."
)
@click.option("--stat", is_flag=True, help="List the files with their added and removed lines instead.")
@global_options
@click.pass_obj
def diff(invocation: Invocation, task_id: str, against: str, stat: bool) -> None:
    """Show the unified diff of TASK."""
    with invocation.workbench() as workbench:
        found = workbench.diff(task_id, against)
    invocation.emit(found, lambda: _show_files(found) if stat else _show_diff(found))


def _show_files(found: Diff) -> None:
    show_table(["FILE", "CHANGE", "ADDED", "REMOVED"], [_file_row(file) for file in found.files])
    added = sum(file.additions or 0 for file in found.files)
    removed = sum(file.deletions or 0 for file in found.files)
    note(f"files: {len(found.files):,}, lines added: {added:,}, removed: {removed:,}")
    _note_running(found)


def _file_row(file: DiffFile) -> list[str]:
    counts = ["-" if count is None else f"{count:,}" for count in (file.additions, file.deletions)]
    return [_format_path(file), file.kind.value, *counts]


def _show_diff(found: Diff) -> None:
    click.echo(neutralise_lines(found.text), nl=False)
    for line in found.impact:
        note(f"note: {one_line(line)}")
    if found.truncated:
        note("... the diff was cut; all its files:")
        for file in found.files:
            note(f"  {file.kind.value:<12} {_format_path(file)}")
    for path in found.lossy:
        note(f"note: not UTF-8, so this is no patch of it: {one_line(path)}")
    _note_running(found)


@click.command()
@click.argument("task_id", metavar="TASK")
@global_options
@click.pass_obj
def impact(invocation: Invocation, task_id: str) -> None:
    """Show when the changes of TASK since its base take effect, and which checks they need.

    The classes of files are those of the repository's profile.
    """
    with invocation.workbench() as workbench:
        found = workbench.impact(task_id)
    invocation.emit(found, lambda: _show_impact(found))


def _show_impact(found: Impact) -> None:
    for line in found.lines:
        click.echo(one_line(line))
    if found.unclassified:
        click.echo(f"{found.unclassified} changed file(s) of no class of the profile")
    if not found.classes and not found.unclassified:
        click.echo("no changes since the base")


for _command in (
    list_,
    use,
    status,
    diff,
    impact,
    snapshot,
    snapshots,
    restore,
    clean,
    fork,
    log,
    sync,
    checkout,
    apply_,
):
    task.add_command(_command)
