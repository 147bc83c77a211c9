"""`sandbox commit` and `sandbox push`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sandbox.cli.invocation import Invocation, add_home, global_options, note, show_examples
from sandbox.errors import SandboxError
from sandbox.models import CommitResult, Host, PushResult
from sandbox.text import one_line

if TYPE_CHECKING:
    from sandbox.workbench import Workbench

_FORCED = "yes: it replaced an earlier commit of this task that is not its ancestor"


@show_examples(
    ('sandbox commit - -m "Lower the name"', "all changes of the task"),
    ("sandbox commit TASK -m MSG --allow dist", "also new files in dist that look built"),
)
@click.command()
@click.argument("task_id", metavar="TASK")
@click.option("-m", "--message", required=True, help="The commit message.")
@click.option(
    "--allow", multiple=True, metavar="PATH",
    help="Commit this new file or folder although it looks built; `.` means all. Repeatable.",
)  # fmt: skip
@global_options
@click.pass_obj
def commit(invocation: Invocation, task_id: str, message: str, allow: tuple[str, ...]) -> None:
    """Commit all changes of TASK to its branch.

    New files that look built (objects, archives, core dumps, caches) or are large are refused unless --allow names
    them.
    """
    with invocation.workbench() as workbench:
        result = workbench.commit(task_id, message, allow)
    invocation.emit(result, lambda: _show(result))


def _show(result: CommitResult) -> None:
    click.echo(f"commit {result.commit}")
    click.echo(f"  tree {result.tree}")
    click.echo(f"  by   {one_line(result.author)}")
    for change in result.files:
        origin = f"{one_line(change.old_path)} -> " if change.old_path else ""
        click.echo(f"  {change.kind.value:<12} {origin}{one_line(change.path)}")
    for line in result.impact:
        note(f"note: {one_line(line)}")
    if result.note:
        note(f"note: {one_line(result.note)}")


@show_examples(
    ("sandbox push -", "the last commit, to the task's own branch"),
)
@click.command()
@click.argument("task_id", metavar="TASK")
@global_options
@click.pass_obj
def push(invocation: Invocation, task_id: str) -> None:
    """Push TASK's commit to its own branch on the remote and verify that it arrived.

    Commits of other people are never overwritten. A rejected push says why (docs/push.md).
    """
    note("Pushing")
    with invocation.workbench() as workbench:
        result = workbench.push(task_id)
        notes = _find_notes(workbench, task_id)
    invocation.emit(result, lambda: _show_push(result))
    for line in notes:
        note(line)


def _find_notes(workbench: Workbench, task_id: str) -> list[str]:
    """A warning and the next step; empty for a task that is not in this home."""
    try:
        task, warning = workbench.task(task_id), _find_warning(workbench, task_id)
    except SandboxError as error:
        if error.reason != "not_on_cluster":
            raise
        return []
    has_forge = workbench.repository(task.repo_id).host is not Host.UNKNOWN
    following = add_home(f"next: sandbox pr {'status' if task.pr_url else 'open'} {task_id}")
    return [*filter(None, [warning]), *([following] if has_forge else [])]


def _find_warning(workbench: Workbench, task_id: str) -> str:
    """That the tree which was sent did not pass its last verification, as the journal has it; else empty."""
    newest = workbench.log(task_id, limit=1)
    if not newest or newest[0].sent is None or newest[0].sent.gate.verified is not False:
        return ""
    return add_home(f"note: this tree is not verified: not all checks passed; see `sandbox verify {task_id}`")


def _show_push(result: PushResult) -> None:
    click.echo(f"pushed {result.commit}")
    click.echo(f"  branch {result.branch}")
    click.echo(f"  forced {_FORCED if result.forced else 'no'}")
    if result.hooks_not_run:
        note(f"note: its hooks {', '.join(result.hooks_not_run)} were not run (docs/push.md)")
