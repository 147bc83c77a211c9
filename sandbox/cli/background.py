"""Background runs: `check run --detach`, `verify --detach`, `layers build --detach`, `check wait`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from sandbox.cli.detach import Starter, fork
from sandbox.cli.invocation import Invocation, add_home, global_options, note
from sandbox.cli.layer_tables import show_prepared
from sandbox.cli.terminal import StatusLine
from sandbox.cli.verdicts import NOT_LAUNCHED, note_uncommitted, show_candidate, show_runs
from sandbox.models import BackgroundRun, Verdict
from sandbox.text import one_line

if TYPE_CHECKING:
    from sandbox.workbench import Workbench

STILL_RUNNING = 5
"""Exit code of `check wait` when its timeout ends before the run."""

_LIVE_POLL_S, _REPORT_S = 1.0, 60.0


def start_detached(invocation: Invocation, start: Callable[[Workbench], BackgroundRun]) -> int:
    """Start a run in a second process and print it. The exit code says whether the run could be started."""
    role = fork()
    if isinstance(role, Starter):
        message = role.wait_for_message()
        if not message:
            return role.wait_for_end()
        started = BackgroundRun.model_validate_json(message)
        invocation.emit(started, lambda: show_background_run(started))
        return 0
    role.end_with_starter()  # until it has reported the run id
    with invocation.workbench() as workbench:
        started = workbench.wait_for_start(start(workbench).run_id)  # an unknown check is this command's own error
        role.report(started.model_dump_json().encode())
        workbench.wait_for_runs()
    return 0


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option(
    "--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Maximum time to wait. Default: no limit."
)
@global_options
@click.pass_obj
def wait(invocation: Invocation, run_id: str, timeout: float | None) -> int:
    """Wait for a background RUN and print its result.

    Exits with 0 when every check passed, with --against there are no new failures, or the packages are there; 1 when
    not, 5 when it still runs after --timeout.
    """
    with invocation.workbench() as workbench:
        found = _wait_for_run(workbench, run_id, timeout, invocation.status)
    invocation.emit(found, lambda: show_background_run(found))
    return exit_code(found)


def _wait_for_run(workbench: Workbench, run_id: str, timeout_s: float | None, status: StatusLine) -> BackgroundRun:
    """On a terminal a status line shows the progress; elsewhere a line is printed each minute."""
    ends_at = math.inf if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left_s = max(0.0, ends_at - time.monotonic())
        found = workbench.wait_run(run_id, min(_LIVE_POLL_S if status.live else _REPORT_S, left_s))
        if found.state == "finished" or time.monotonic() >= ends_at:
            status.clear()
            return found
        if status.live:
            status.show(f"{_progress(found)}  {''.join(found.last_lines[-1:])}")
        else:
            note(f"still running: {_progress(found)}")


def exit_code(found: BackgroundRun) -> int:
    """0: all checks passed, or none failed newly if that was asked; 1: otherwise; `STILL_RUNNING`."""
    if found.state == "running":
        return STILL_RUNNING
    if found.operation == "layers-build":
        return 0 if found.prepared is not None else 1
    if found.operation == "explore":
        return 0 if found.exploration is not None and found.exploration.winner else 1
    if found.verification is not None:
        from sandbox.cli.verification_view import is_accepted  # noqa: PLC0415 - lazy: commands start fast

        return 0 if is_accepted(found.verification) else 1
    return 0 if all(run.verdict is Verdict.PASSED for run in found.runs) else 1


def show_background_run(found: BackgroundRun) -> None:
    """Print the progress of a run, or its result."""
    if found.state == "running":
        click.echo(f"{found.run_id}  {_progress(found)}")
        for line in found.last_lines:
            click.echo(f"      {one_line(line)}")
        note(add_home(f"The run continues in the background. Wait for it: sandbox check wait {found.run_id}"))
        return
    if found.operation == "layers-build":
        _show_prepared(found)
        return
    if found.exploration is not None:
        from sandbox.cli.exploration_table import show_exploration  # noqa: PLC0415 - lazy: commands start fast

        show_exploration(found.exploration)
        return
    if found.operation == "candidate" and found.verification:
        note_uncommitted(found.verification.uncommitted, NOT_LAUNCHED)
        show_candidate(found.verification, found.task_id)
        return
    if found.verification is None:
        show_runs(found.runs, found.task_id)
        return
    from sandbox.cli.verification_view import show_verification  # noqa: PLC0415 - lazy: commands start fast

    note_uncommitted(found.verification.uncommitted)
    show_verification(found.verification, found.task_id)


def _show_prepared(found: BackgroundRun) -> None:
    if found.prepared is None:
        click.echo("stopped")
    else:
        show_prepared(found.prepared)


def _progress(found: BackgroundRun) -> str:
    what = f"{found.check_id or found.operation} of {found.task_id or found.repo_id}"
    if found.waits_for:
        return f"{what}: waiting for {found.waits_for}, {found.elapsed_s:.0f} s so far"
    if found.queue_position:
        return f"{what}: waiting, number {found.queue_position} in the queue, {found.elapsed_s:.0f} s so far"
    deadline = f", deadline at {found.deadline_s:.0f} s" if found.deadline_s else ""
    return f"{what}: running for {found.elapsed_s:.0f} s{deadline}"
