"""`sandbox task sync|checkout|apply`: move a task to another commit, and bring its result into a directory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sandbox.cli.invocation import Invocation, add_home, global_options, note
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_pattern import lazy_pattern
from sandbox.text import neutralise_lines, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandbox.models import ApplyResult, CheckoutResult, ConflictResolution, MergeConflict, SyncResult

_KEY = lazy_pattern(r"^(?P<path>.+)@(?P<ours>[0-9a-f]{40,64}|-)\.\.(?P<theirs>[0-9a-f]{40,64}|-)\Z", re.DOTALL)
_FILE_BYTES = 8 * 1024**2
_offline = click.option("--offline", is_flag=True, help="Do not fetch first: use what the last fetch brought.")


@click.command()
@click.argument("task_id", metavar="TASK")
@click.option("--onto", metavar="BRANCH|COMMIT", help="Default: the task's base branch.")
@click.option("--ours", multiple=True, metavar="CONFLICT", help="Resolve a conflict with the task's side. Repeatable.")
@click.option("--theirs", multiple=True, metavar="CONFLICT", help="... with the side of the newer base. Repeatable.")
@click.option(
    "--edited", multiple=True, nargs=2, metavar="CONFLICT FILE", help="... with the content of FILE. Repeatable."
)
@click.option(
    "--show", is_flag=True, help="Print the text of each conflict, with markers; of a long file its conflicting lines."
)
@_offline
@global_options
@click.pass_obj
def sync(
    invocation: Invocation,
    /,
    task_id: str,
    onto: str | None,
    edited: tuple[tuple[str, str], ...],
    show: bool,
    offline: bool,
    **sides: tuple[str, ...],
) -> int:
    """Merge a newer base into TASK. Uncommitted changes are saved as a snapshot first.

    With conflicts the task stays as it is. They are listed as PATH@OURS..THEIRS: repeat the command with one of --ours,
    --theirs or --edited for each. The exit code is then 4.
    """
    answers = [_take(side, text) for side in ("ours", "theirs") for text in sides[side]]
    answers += [_use_file(text, name) for text, name in edited]
    with invocation.workbench() as workbench:
        done = workbench.sync_task(task_id, onto, answers, fetch=not offline)
    invocation.emit(done, lambda: _show_sync(done, with_text=show))
    return 4 if done.conflicts else 0


def _take(side: str, text: str) -> ConflictResolution:
    return _parse_conflict(text, take=side)


def _use_file(text: str, name: str) -> ConflictResolution:
    path = Path(name)
    try:
        if path.stat().st_size > _FILE_BYTES:
            raise SandboxError(ErrorCode.INVALID_INPUT, f"{name} is larger than {_FILE_BYTES} bytes")
        content = path.read_bytes().decode()  # `read_text` would make LF of CRLF
    except (OSError, UnicodeDecodeError) as error:
        raise SandboxError(ErrorCode.INVALID_INPUT, f"{name} cannot be read as text", details=str(error)) from error
    return _parse_conflict(text, content=content)


def _parse_conflict(text: str, **answer: str) -> ConflictResolution:
    from sandbox.models import ConflictResolution  # noqa: PLC0415 - lazy, to start fast

    found = _KEY.match(text)
    if found is None:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"'{text[:100]}' does not name a conflict",
            hint="Copy PATH@OURS..THEIRS from the list of `sandbox task sync`.",
        )
    ours, theirs = (None if found[side] == "-" else found[side] for side in ("ours", "theirs"))
    return ConflictResolution.model_validate({"path": found["path"], "ours": ours, "theirs": theirs, **answer})


def _show_sync(done: SyncResult, *, with_text: bool) -> None:
    if done.conflicts:
        _show_conflicts(done.conflicts, with_text=with_text)
        note(
            add_home(
                "answer each: `sandbox task sync TASK --ours CONFLICT`, `--theirs CONFLICT` or `--edited CONFLICT FILE`"
            )
        )
        note(f"{len(done.conflicts)} conflict(s) with {done.onto[:12]}: the task stays as it is")
        _show_note(done)
        return
    word = "up to date with" if done.state.value == "up_to_date" else "synced with"
    click.echo(f"{word} {done.onto[:12]}: {done.ahead} commit(s) ahead, {len(done.changes)} uncommitted change(s)")
    if done.previous is not None:
        click.echo(f"  before it  {done.previous.id}")
    _show_note(done)


def _show_note(done: SyncResult) -> None:
    if done.note:
        note(f"note: {one_line(done.note)}")


def _show_conflicts(conflicts: Sequence[MergeConflict], *, with_text: bool) -> None:
    for conflict in conflicts:
        sides = (side.blob if side else "-" for side in (conflict.ours, conflict.theirs))
        click.echo(f"{conflict.kind.value:<18} {one_line(conflict.path)}@{'..'.join(sides)}")
        if with_text and (text := conflict.merged or conflict.excerpt) is not None:
            click.echo(neutralise_lines(text))


@click.command()
@click.argument("task_id", metavar="TASK")
@click.argument("ref", metavar="REF")
@_offline
@global_options
@click.pass_obj
def checkout(invocation: Invocation, task_id: str, ref: str, offline: bool) -> None:
    """Move TASK to another branch, tag, commit or pull request (pr/NUMBER) of its repository.

    Uncommitted changes are saved as a snapshot and applied there; if they do not apply, the task stays as it is. A task
    with commits of its own is not moved.
    """
    with invocation.workbench() as workbench:
        done = workbench.checkout_task(task_id, ref, fetch=not offline)
    invocation.emit(done, lambda: _show_checkout(done))


def _show_checkout(done: CheckoutResult) -> None:
    click.echo(f"at {done.base_commit[:12]} ({done.base_branch}): {len(done.changes)} uncommitted change(s)")
    if done.previous is not None:
        click.echo(f"  before it  {done.previous.id}")


@click.command("apply")
@click.argument("task_id", metavar="TASK")
@click.option("--to", "directory", required=True, type=click.Path(path_type=Path), help="The top of your checkout.")
@click.option("--uncommitted", is_flag=True, help="Apply uncommitted changes, too. Default: the task's commits.")
@click.option("--dry-run", is_flag=True, help="Only show what would be written.")
@global_options
@click.pass_obj
def apply_(invocation: Invocation, task_id: str, directory: Path, uncommitted: bool, dry_run: bool) -> None:
    """Write the result of TASK into your own checkout: all files, or none if one differs from the task's base there.

    git does not open the directory, so it stages and commits no file there.
    """
    with invocation.workbench() as workbench:
        done = workbench.apply_task(task_id, directory, uncommitted=uncommitted, dry_run=dry_run)
    invocation.emit(done, lambda: _show_applied(done))


def _show_applied(done: ApplyResult) -> None:
    for file in done.files:
        state = "  (already there)" if file.already else ""
        flags = f"  [{', '.join(file.flags)}]" if file.flags else ""
        click.echo(f"  {file.kind.value:<12} {one_line(file.path)}{flags}{state}")
    what = f"commit {done.commit[:12]}" if done.commit else "the working state"
    count = sum(not file.already for file in done.files)
    words = "would be written to" if done.dry_run else "written to"
    click.echo(f"{count} file(s) of {what} {words} {one_line(str(done.directory))}")
    if done.uncommitted:
        note(f"{done.uncommitted} uncommitted change(s) were left out: --uncommitted applies them, too")
