"""`sandbox check runs` and `sandbox check log`."""

from __future__ import annotations

import base64
import sys

import click

from sandbox.cli.invocation import Invocation, global_options, note, table
from sandbox.cli.times import format_for_listing
from sandbox.models import CheckRun, RunLog, StreamName


@click.command()
@click.argument("owner_id", metavar="TASK")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many.")
@global_options
@click.pass_obj
def runs(invocation: Invocation, owner_id: str, limit: int) -> None:
    """List past runs of TASK's checks, or of a repository's (`sandbox run`); newest first."""
    with invocation.workbench() as workbench:
        found = workbench.runs(owner_id, limit)
    headers = ["RUN", "CHECK", "VERDICT", "STARTED", "TOOK", "WHERE"]
    invocation.emit({"runs": found}, lambda: table(headers, [_row(run) for run in found]))


def _row(run: CheckRun) -> list[str]:
    where = "clean room" if run.clean_room else "task"
    return [
        run.run_id,
        run.check_id,
        run.verdict.value,
        format_for_listing(run.started_at),
        f"{run.wall_time_s:.1f} s",
        where,
    ]


@click.command()
@click.argument("owner_id", metavar="TASK")
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--stream", type=click.Choice(["stdout", "stderr"]), default="stdout", show_default=True)
@click.option("--raw", is_flag=True, help="Exact bytes, terminal sequences and all; with --json as base64.")
@global_options
@click.pass_obj
def log(invocation: Invocation, owner_id: str, run_id: str | None, stream: StreamName, raw: bool) -> None:
    """Print what a run of TASK's checks, or of a repository's, wrote; without RUN the newest one.

    Terminal sequences and control characters are taken out unless --raw is given.
    """
    with invocation.workbench() as workbench:
        found = workbench.run_log(owner_id, run_id, stream, raw=raw)
    invocation.emit(found, lambda: _show(found))
    if found.stream == "stdout" and not found.total_bytes:
        other = f"sandbox check log {owner_id} {found.run_id} --stream stderr"
        note(f"It wrote nothing to stdout; the other stream: {invocation.copyable(other)}")


def _show(found: RunLog) -> None:
    if found.encoding == "base64":
        sys.stdout.flush()
        sys.stdout.buffer.write(base64.b64decode(found.content))
        sys.stdout.buffer.flush()
    else:
        click.echo(found.content, nl=not found.content.endswith("\n") and bool(found.content))
    if found.truncated:
        note(f"The run wrote {found.total_bytes:,} bytes; the middle of them was not kept.")
