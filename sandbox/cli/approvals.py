"""`sandbox approvals`: the user's answers to the approval requests of agents."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from sandbox.cli.invocation import Invocation, global_options, show_table
from sandbox.cli.person import describe_user
from sandbox.cli.time_format import format_for_listing, format_local, format_relative
from sandbox.models import Approval, ApprovalScope, ApprovalState, Caller
from sandbox.store.short_ids import ambiguous_error
from sandbox.text import escape_invisible, one_line

if TYPE_CHECKING:
    from sandbox.workbench import Workbench

_SUBJECT_CHARS = 80


def add_id_or_all_options(command: Callable[..., None]) -> Callable[..., None]:
    """Take either ID, or --all with an optional --tool. The command gets `approval_id` (None: all) and `tool`."""

    @wraps(command)
    def require_one_or_all(*args: Any, approval_id: str | None, everything: bool, tool: str | None) -> None:
        if (approval_id is None) != everything or (tool is not None and not everything):
            raise click.UsageError("Give either one ID or --all; --tool needs --all.")
        command(*args, approval_id=approval_id, tool=tool)

    named = click.argument("approval_id", metavar="[ID]", required=False)
    every = click.option("--all", "everything", is_flag=True, help="Answer all of them, instead of one ID.")
    return named(every(click.option("--tool", help="With --all: only the requests for this tool.")(require_one_or_all)))


@click.group()
def approvals() -> None:
    """List and answer the approval requests of agents."""


@approvals.command("list")
@click.option("--all", "everything", is_flag=True, help="Also list used, revoked and expired ones.")
@global_options
@click.pass_obj
def list_(invocation: Invocation, everything: bool) -> None:
    """List open requests and approvals in force."""
    with invocation.workbench() as workbench:
        found = workbench.approvals(everything=everything)
    _emit_all(invocation, found)


def _complete(workbench: Workbench, name: str) -> str:
    """The id of the only request or approval that begins so; any other name unchanged. Here only, where all can be
    listed anyway: elsewhere an id is known by who was given it.
    """
    if not re.fullmatch(r"apr-[a-z2-7]{4,25}", name):
        return name
    found = [one.id for one in workbench.approvals(everything=True) if one.id.startswith(name)]
    if len(found) > 1:
        brief = f"The ids of {len(found)} requests begin with '{name}'"
        raise ambiguous_error(brief, found, "Give more characters of the id.")
    return found[0] if found else name


@approvals.command()
@click.argument("approval_id", metavar="ID")
@global_options
@click.pass_obj
def show(invocation: Invocation, approval_id: str) -> None:
    """Show a request: the question, who asked, the exact arguments; who decided, when and on which surface."""
    with invocation.workbench() as workbench:
        found = workbench.approval(_complete(workbench, approval_id))
        changed = workbench.approval_changes(found.id)
    _emit_compared(invocation, found, changed)


@approvals.command()
@click.argument("approval_id", metavar="ID")
@click.option(
    "--for", "scope", type=click.Choice([s.value for s in ApprovalScope]), default="once",
    help="task, repository: allow the tool there with any arguments, until the approval expires.",
)  # fmt: skip
@global_options
@click.pass_obj
def approve(invocation: Invocation, approval_id: str, scope: str) -> None:
    """Approve request ID. The agent may make exactly that call, or more calls with --for."""
    with invocation.workbench() as workbench:
        request = _complete(workbench, approval_id)
        found = workbench.answer_approval(request, approved=True, by=describe_user(), scope=ApprovalScope(scope))
        changed = workbench.approval_changes(found.id)
    _emit_compared(invocation, found, changed)


@approvals.command()
@add_id_or_all_options
@global_options
@click.pass_obj
def deny(invocation: Invocation, approval_id: str | None, tool: str | None) -> None:
    """Deny request ID, or every open request with --all."""
    with invocation.workbench() as workbench:
        if approval_id is None:
            _emit_all(invocation, workbench.deny_approvals(by=describe_user(), tool=tool))
        else:
            request = _complete(workbench, approval_id)
            _emit(invocation, workbench.answer_approval(request, approved=False, by=describe_user()))


@approvals.command()
@add_id_or_all_options
@global_options
@click.pass_obj
def revoke(invocation: Invocation, approval_id: str | None, tool: str | None) -> None:
    """Revoke approval ID, or every approval in force and every open request with --all."""
    with invocation.workbench() as workbench:
        if approval_id is None:
            _emit_all(invocation, workbench.revoke_approvals(by=describe_user(), tool=tool))
        else:
            _emit(invocation, workbench.revoke_approval(_complete(workbench, approval_id), by=describe_user()))


def _emit_compared(invocation: Invocation, found: Approval, changed: Sequence[str]) -> None:
    """`changed`: since the question was asked."""

    def show_both() -> None:
        _show(found)
        if changed:
            click.echo("changed since it was asked, so the call of now needs another approval:")
        for line in changed:
            click.echo(f"  {one_line(line)}")

    invocation.emit({"approval": found, "changed": list(changed)}, show_both)


def _emit(invocation: Invocation, found: Approval) -> None:
    invocation.emit({"approval": found}, lambda: _show(found))


def _emit_all(invocation: Invocation, found: Sequence[Approval]) -> None:
    invocation.emit({"approvals": found}, lambda: _table(found))


def _table(found: Sequence[Approval]) -> None:
    rows = [[a.id, a.state.value, a.scope.value, a.tool, _name_subject(a), *_decision_cells(a)] for a in found]
    show_table(["APPROVAL", "STATE", "FOR", "TOOL", "ABOUT", "DECIDED", "BY"], rows)


def _name_subject(found: Approval) -> str:
    """The task or repository, or the URL of a call that has neither, of a long one the beginning."""
    url = str(json.loads(found.arguments).get("url", "-"))
    subject = found.task_id or found.repo_id or escape_invisible(url)
    return subject if len(subject) <= _SUBJECT_CHARS else f"{subject[: _SUBJECT_CHARS - 1]}…"


def _decision_cells(found: Approval) -> list[str]:
    return [format_for_listing(found.decided_at) if found.decided_at else "-", one_line(found.decided_by) or "-"]


def _show(found: Approval) -> None:
    for line in found.question:
        click.echo(line)
    click.echo(f"arguments: {one_line(found.arguments)}")
    click.echo(f"asked at {format_local(found.created_at)}{_format_caller(found.asked_by)}")
    if found.decided_at is not None:
        word = "revoked" if found.state is ApprovalState.REVOKED else "decided"
        click.echo(
            f"{word} at {format_local(found.decided_at)} by {one_line(found.decided_by)}{_format_decider(found)}"
        )
    if found.used_at is not None:
        click.echo(f"used at {format_local(found.used_at)}")
    until = f"{format_local(found.expires_at)} ({format_relative(found.expires_at)})"
    click.echo(f"{found.state.value}, for {found.scope.value}, until {until}  {found.id}")


_SURFACES = {"cli": "on the command line", "python": "by a program", "elicitation": "in a dialog of the agent's client"}


def _format_decider(found: Approval) -> str:
    if found.surface == "cli" and found.decider is not None:  # the name says the rest
        return f" (uid {found.decider.uid})"
    return f" ({_SURFACES[found.surface]}){_format_caller(found.decider)}" if found.surface else ""


def _format_caller(caller: Caller | None) -> str:
    if caller is None:
        return ""
    sudo = f", by sudo from {one_line(caller.sudo_user)}" if caller.sudo_user else ""
    client = f", client {one_line(caller.client)} {one_line(caller.client_version)}".rstrip() if caller.client else ""
    return f", user {one_line(caller.user)} (uid {caller.uid}{sudo}){client}"
