"""`sandbox candidate` and `sandbox promote`: applications that edit themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sandbox.cli.background import start_detached
from sandbox.cli.clean_room_options import CleanRoomArguments, add_clean_room_options
from sandbox.cli.invocation import Invocation, global_options, note, runtime_option
from sandbox.cli.time_format import format_for_listing, format_local
from sandbox.cli.verdicts import NOT_LAUNCHED, note_uncommitted, show_candidate
from sandbox.models.releases import ReleaseEvent, ReleaseState
from sandbox.text import one_line

if TYPE_CHECKING:
    from sandbox.workbench import Workbench

_WORDS = {
    ReleaseEvent.PROMOTED: "promoted",
    ReleaseEvent.CONFIRMED: "confirmed",
    ReleaseEvent.SWITCHED_BACK: "switched back",
    ReleaseEvent.ROLLED_BACK: "rolled back",
}


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
    if not invocation.json:
        note_uncommitted(result.uncommitted, NOT_LAUNCHED)
    invocation.emit(result, lambda: show_candidate(result, owner_id))
    return 0 if result.verified else 1


@click.command()
@click.argument("owner_id", metavar="TASK|REPO")
@click.option("--no-wait", is_flag=True, help="Do not wait until the release is confirmed or switched back.")
@click.option("--confirm", "action", flag_value="confirm", help="Confirm the release that waits for it.")
@click.option("--rollback", "action", flag_value="rollback", help="Put the release before the one in use in use again.")
@click.option("--history", "action", flag_value="history", help="Show what is in use, and what was.")
@global_options
@click.pass_obj
def promote(invocation: Invocation, owner_id: str, action: str | None, no_wait: bool) -> int:
    """Put the artifacts of TASK's candidate, or of REPO's default branch, in use as a release of this host.

    The candidate of exactly this tree must have passed (sandbox candidate). Its artifacts are copied, read-only, and
    the link `current` is switched to them. They are not started here: the application's own launcher follows
    `current`, and confirms by creating the file that this command names, or with --confirm. Without that in time, the
    release before is put in use again.
    Exits with 0 when the release is in use, else with 1.
    """
    with invocation.workbench() as workbench:
        if action == "confirm":
            state = workbench.confirm_release(owner_id)
        elif action == "rollback":
            state = workbench.roll_back_release(owner_id)
        elif action == "history":
            state = workbench.releases(owner_id)
        else:
            state = _promote(invocation, workbench, owner_id, wait=not no_wait)
    invocation.emit(state, lambda: _show_releases(state, history=action == "history"))
    ended = state.history[-1].event if state.history else None
    return 1 if action is None and ended is ReleaseEvent.SWITCHED_BACK else 0


def _promote(invocation: Invocation, workbench: Workbench, owner_id: str, *, wait: bool) -> ReleaseState:
    state = workbench.promote(owner_id, 0.0)
    if not invocation.json:
        note_uncommitted(state.uncommitted, "not part of the release: commit them, and launch a candidate of them")
    if state.pending is None or not wait:
        return state
    try:
        _announce(state)
        return workbench.wait_release(owner_id).model_copy(update={"uncommitted": state.uncommitted})
    except KeyboardInterrupt:
        _say_what_stays(invocation, state)
        raise


def _announce(state: ReleaseState) -> None:
    if state.pending is not None:
        note(f"in use: {state.folder}/current; confirm until {format_local(state.pending.until)} with the file")
        note(f"  {state.confirm}")


def _say_what_stays(invocation: Invocation, state: ReleaseState) -> None:
    """After an interrupt, which ends the command and not the promotion."""
    if state.pending is not None:
        until = format_local(state.pending.until)
        note(
            f"Release {state.pending.release[:12]} stays in use and is not confirmed. From {until} on, `sandbox gc` and"
        )
        note("the next command that changes something switch it back; no process of this command waits for that.")
        for action in ("confirm", "rollback"):
            note(invocation.add_home(f"sandbox promote --{action} {state.repo_id}"))


def _show_releases(state: ReleaseState, *, history: bool) -> None:
    click.echo(f"{state.repo_id}  {state.folder}")
    click.echo(f"  current   {state.current or 'none'}")
    click.echo(f"  previous  {state.previous or 'none'}")
    if state.pending is not None:
        click.echo(f"  waits for its confirmation until {format_local(state.pending.until)}: {state.confirm}")
    for entry in state.history if history else state.history[-1:]:
        before = f", before {entry.previous[:12]}" if entry.previous else ""
        what = f"{_WORDS[entry.event]} {entry.release[:12] or 'none'}{before}"
        click.echo(f"  {format_for_listing(entry.at)}  {one_line(what)}")
