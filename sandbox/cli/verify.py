"""`sandbox verify`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from sandbox.cli.background import start_detached
from sandbox.cli.clean_room_options import CleanRoomArguments, add_clean_room_options
from sandbox.cli.invocation import Invocation, global_options, runtime_option, show_examples
from sandbox.cli.verdicts import note_uncommitted
from sandbox.cli.verification_view import is_accepted, show_verification
from sandbox.workbench.checks.verify_options import MOST_ROUNDS, MOST_SEED


@show_examples(
    ("sandbox verify -", "all checks of the task's last commit"),
    ("sandbox verify TASK --against base", "only new failures count"),
)
@click.command()
@click.argument("task_id", metavar="TASK")
@click.option("--against", metavar="TREE", help="Compare with the same checks on 'base', a commit or a task.")
@click.option(
    "--repeat",
    type=click.IntRange(1, MOST_ROUNDS),
    default=1,
    metavar="N",
    help="Run the checks N times, each time in fresh rooms, to find flaky tests.",
)
@click.option("--shuffle", type=click.IntRange(0, MOST_SEED), metavar="SEED",
              help="Run the tests in another order, where the check knows how.")  # fmt: skip
@click.option("--detach", is_flag=True, help="Return at once; the checks run in the background (see check wait).")
@add_clean_room_options
@runtime_option
@global_options
@click.pass_obj
def verify(invocation: Invocation, /, task_id: str, rooms: CleanRoomArguments, detach: bool, **more: Any) -> int:
    """Run all checks on TASK's last commit in clean rooms: a fresh checkout in fresh containers.

    Verdicts of earlier clean rooms for the same tree, image and checks are reused unless --no-cache is given.
    A check that failed only once runs again.

    With --against the same checks run on another tree, too (base: what the task is based on). A test that
    fails here and not there, or that ran there and not here, is a new failure. What fails newly runs twice more: a test
    that fails and passes on one tree is flaky, and is no new failure.

    Exits with 0 when every check passed, or with --against when there are no new failures; else with 1.
    """
    options = replace(rooms.options, **more)
    if detach:
        return start_detached(invocation, lambda workbench: workbench.start_verify(task_id, options=options))
    with invocation.workbench() as workbench:
        result = workbench.verify(task_id, rooms.watch, options)
        repo_id = workbench.task(task_id).repo_id
    if not invocation.json:
        note_uncommitted(result.uncommitted)
    invocation.emit(result, lambda: show_verification(result, repo_id))
    return 0 if is_accepted(result) else 1
