"""`sandbox approvals`: the person's side of what agents ask for."""

from __future__ import annotations

import click

from sandbox.cli.invocation import Invocation, global_options, table
from sandbox.cli.person import person
from sandbox.models import Approval, ApprovalScope


@click.group()
def approvals() -> None:
    """List and answer what agents ask to do."""


@approvals.command("list")
@click.option("--all", "everything", is_flag=True, help="Also what is over.")
@global_options
@click.pass_obj
def list_(invocation: Invocation, everything: bool) -> None:
    """List open questions, and approvals in force."""
    with invocation.workbench() as workbench:
        found = workbench.approvals(everything=everything)
    rows = [[a.id, a.state.value, a.scope.value, a.tool, a.task_id or a.repo_id or "-"] for a in found]
    invocation.emit({"approvals": found}, lambda: table(["APPROVAL", "STATE", "FOR", "TOOL", "ABOUT"], rows))


@approvals.command()
@click.argument("approval_id", metavar="ID")
@global_options
@click.pass_obj
def show(invocation: Invocation, approval_id: str) -> None:
    """Show the whole question."""
    with invocation.workbench() as workbench:
        found = workbench.approval(approval_id)
    invocation.emit({"approval": found}, lambda: _show(found))


@approvals.command()
@click.argument("approval_id", metavar="ID")
@click.option(
    "--for", "scope", type=click.Choice([s.value for s in ApprovalScope]), default="once",
    help="task, repository: the tool may be called again there with any arguments, until this expires.",
)  # fmt: skip
@global_options
@click.pass_obj
def approve(invocation: Invocation, approval_id: str, scope: str) -> None:
    """Let the agent make the call that ID asks about: exactly that one, unless --for says more."""
    with invocation.workbench() as workbench:
        found = workbench.answer_approval(approval_id, approved=True, by=person(), scope=ApprovalScope(scope))
    invocation.emit({"approval": found}, lambda: _show(found))


@approvals.command()
@click.argument("approval_id", metavar="ID")
@global_options
@click.pass_obj
def deny(invocation: Invocation, approval_id: str) -> None:
    """Refuse the call that ID asks about."""
    with invocation.workbench() as workbench:
        found = workbench.answer_approval(approval_id, approved=False, by=person())
    invocation.emit({"approval": found}, lambda: _show(found))


@approvals.command()
@click.argument("approval_id", metavar="ID")
@global_options
@click.pass_obj
def revoke(invocation: Invocation, approval_id: str) -> None:
    """Take the approval ID back."""
    with invocation.workbench() as workbench:
        found = workbench.revoke_approval(approval_id, by=person())
    invocation.emit({"approval": found}, lambda: _show(found))


def _show(found: Approval) -> None:
    for line in found.question:
        click.echo(line)
    click.echo(f"{found.state.value}, for {found.scope.value}, until {found.expires_at:%Y-%m-%d %H:%M} UTC  {found.id}")
