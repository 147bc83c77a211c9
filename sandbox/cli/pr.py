"""`sandbox pr`."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import click

from sandbox.cli.invocation import Invocation, add_home, global_options, note, show_examples
from sandbox.models import CiCheck, CiState, CiVerdict, PullRequest, PullRequestStatus, PullState
from sandbox.text import neutralise, one_line

_COLORS = {CiState.PASS: "green", CiState.FAIL: "red", CiState.PENDING: "yellow"}
_FAILED, _CONFLICT = 1, 4
_BODY_CHARS = 64 * 1024  # more than the limit, which the workbench enforces


@click.group()
def pr() -> None:
    """Open and watch pull requests."""


@show_examples(
    ("sandbox pr open -", "a draft, with the first commit's title"),
    ("sandbox pr open TASK --title T --ready", "for review; needs a verified tree"),
)
@pr.command("open")
@click.argument("task_id", metavar="TASK")
@click.option("--title", default="", help="Title. Default: first line of the task's first commit message.")
@click.option("--body", help="Description in Markdown; the record of the task is added below it.")
@click.option(
    "--body-file",
    type=click.Path(path_type=Path, allow_dash=True),
    help="File with the description; `-`: standard input.",
)
@click.option("--ready", is_flag=True, help="Open it as ready for review, or mark an existing draft as ready.")
@global_options
@click.pass_obj
def open_(
    invocation: Invocation, task_id: str, title: str, body: str | None, body_file: Path | None, ready: bool
) -> None:
    """Push TASK's commit and open a draft pull request for its branch.

    An existing pull request is updated.
    """
    text = _body(body, body_file)
    note("Pushing and opening the pull request")
    with invocation.workbench() as workbench:
        pull = workbench.open_pull_request(task_id, title, text, draft=not ready)
    invocation.emit(pull, lambda: _show_opened(pull, task_id))


def _body(body: str | None, source: Path | None) -> str:
    if body is not None and source is not None:
        raise click.UsageError("Give either --body or --body-file.")
    return (body or "") if source is None else _read_text(source)


def _read_text(source: Path) -> str:
    try:
        with nullcontext(sys.stdin) if str(source) == "-" else source.open(encoding="utf-8") as stream:
            text = stream.read(_BODY_CHARS + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"Cannot read {source} as text: {error}") from error
    if len(text) > _BODY_CHARS:
        raise click.UsageError(f"{source} is longer than {_BODY_CHARS} characters.")
    return text


def _show_opened(pull: PullRequest, task_id: str) -> None:
    kind = "draft" if pull.draft else "ready"
    click.echo(f"{'opened' if pull.created else 'kept'} {kind} {one_line(pull.url)}")
    click.echo(f"  {one_line(pull.head)} -> {one_line(pull.base)}, at {pull.head_commit[:12]}")
    note(add_home(f"next: sandbox pr status {task_id} --watch"))


@pr.command()
@click.argument("task_id", metavar="TASK")
@click.option("--watch", is_flag=True, help="Wait until there is a verdict.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=1), default=3600.0, show_default=True,
              help="With --watch: maximum seconds to wait.")  # fmt: skip
@global_options
@click.pass_obj
def status(invocation: Invocation, task_id: str, watch: bool, timeout_s: float) -> int:
    """Show TASK's pull request and the verdict of its checks at the forge.

    Exits with 1 when a check failed or the pull request was closed without a merge, and with 4 when its head is not the
    task's last commit.
    """
    with invocation.workbench() as workbench:
        if watch:
            found = workbench.follow_pull_request(task_id, _print_progress, timeout_s)
        else:
            found = workbench.pull_request_status(task_id)
    invocation.emit(found, lambda: _show(found))
    return _exit_code(found)


def _exit_code(found: PullRequestStatus) -> int:
    if found.state is PullState.MERGED:
        return 0
    if found.state is PullState.CLOSED:
        return _FAILED
    if not found.current:
        return _CONFLICT
    return _FAILED if found.verdict is CiVerdict.FAIL else 0


def _print_progress(found: PullRequestStatus) -> None:
    done = sum(check.state is not CiState.PENDING for check in found.checks)
    note(f"{found.state.value}, {found.verdict.value}: {done} of {len(found.checks)} checks finished")


def _show(found: PullRequestStatus) -> None:
    click.echo(f"{one_line(found.url)}  {found.state.value}{', draft' if found.draft else ''}")
    click.echo(f"  verdict {found.verdict.value}, of {found.head_commit[:12]}")
    if not found.current:
        click.echo("  its head is not the task's last commit: push again, or wait until the forge shows the push")
    for check in found.checks:
        _show_check(check)
    if found.unseen:
        note(one_line(found.unseen))


def _show_check(check: CiCheck) -> None:
    state = click.style(f"{check.state.value:<7}", fg=_COLORS[check.state])
    said = f" ({one_line(check.said)})" if check.said not in {"", "success", check.state.value} else ""
    click.echo(f"  {state} {one_line(check.name)}{said}  {one_line(check.url or '')}".rstrip())
    for line in neutralise(check.excerpt).splitlines():
        click.echo(f"      | {line}")
