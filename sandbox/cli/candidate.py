"""`sandbox candidate`."""

from __future__ import annotations

import click

from sandbox.cli.background import start_detached
from sandbox.cli.clean_room_options import CleanRoomArguments, add_clean_room_options
from sandbox.cli.invocation import Invocation, global_options, runtime_option
from sandbox.cli.verdicts import show_runs
from sandbox.models import Verification


@click.command()
@click.argument("owner_id", metavar="TASK|REPO")
@click.option("--detach", is_flag=True, help="Return at once; it runs in the background (see check wait). Tasks only.")
@add_clean_room_options
@runtime_option
@global_options
@click.pass_obj
def candidate(invocation: Invocation, owner_id: str, rooms: CleanRoomArguments, detach: bool) -> int:
    """Build, launch and probe the application of TASK's last commit, or of REPO's default branch, in a clean room.

    What it must do is the table [launch] of its profile: be ready in time, answer the probes, stay up, and stop.
    The verdict is bound to the tree, the image, the policy and this definition, and reused unless --no-cache is given.
    Exits with 0 when every phase passed, else with 1.
    """
    if detach:
        return start_detached(invocation, lambda workbench: workbench.start_candidate(owner_id, options=rooms.options))
    with invocation.workbench() as workbench:
        result = workbench.candidate(owner_id, rooms.watch, rooms.options)
    invocation.emit(result, lambda: _show(result, owner_id))
    return 0 if result.verified else 1


def _show(result: Verification, owner_id: str) -> None:
    show_runs(result.runs, owner_id)
    word = click.style("passed", fg="green", bold=True) if result.verified else click.style("did not pass", fg="red")
    click.echo(f"candidate {word}: tree {result.tree}")
