"""`sandbox check`."""

from __future__ import annotations

import click

from sandbox.byte_sizes import format_bytes
from sandbox.cli import check_runs
from sandbox.cli.background import show_background_run, start_detached, wait
from sandbox.cli.invocation import Invocation, global_options, runtime_option, show_examples, show_table
from sandbox.cli.repository_notes import show_advice
from sandbox.cli.usage import usage
from sandbox.cli.verdicts import CheckProgress, show_runs
from sandbox.models import Check, Limits, StopResult, Verdict


@click.group()
def check() -> None:
    """List, run and stop a task's checks, and read their output."""


@check.command("list")
@click.argument("owner_id", metavar="TASK")
@global_options
@click.pass_obj
def list_(invocation: Invocation, owner_id: str) -> None:
    """List the checks of TASK or of a repository."""
    with invocation.workbench() as workbench:
        found = workbench.checks(owner_id)
        advice = workbench.advice(owner_id)
    rows = [
        [c.id, f"{c.timeout_s:g} s", ", ".join(c.requires) or "-", _limits(c), _arguments(c), c.label] for c in found
    ]
    headers = ["CHECK", "DEADLINE", "REQUIRES", "LIMITS", "ARGUMENTS", "WHAT"]
    invocation.emit({"checks": found, "advice": advice}, lambda: show_table(headers, rows))
    show_advice(advice)


def _limits(check: Check) -> str:
    """The limits of a check that differ from the defaults."""
    usual = Limits()
    own = {name: value for name, value in check.limits if value != getattr(usual, name)}
    said = [f"{name}={format_bytes(value) if name.endswith('_bytes') else f'{value:g}'}" for name, value in own.items()]
    return ", ".join([*said, *([f"jobs={check.jobs}"] if check.jobs else [])]) or "-"


def _arguments(check: Check) -> str:
    return " ".join(f"[{p.name.upper()}]{'...' if p.many else ''}" for p in check.parameters) or "-"


class _WithArguments(click.Command):
    """A command that hands what stands after `--` on as `arguments`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, arguments = args, list[str]()
        if "--" in args:
            place = args.index("--")
            own, arguments = args[:place], args[place + 1 :]
        rest = super().parse_args(ctx, own)
        ctx.params["arguments"] = tuple(arguments)
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENT...]"]


@show_examples(
    ("sandbox check run - test --follow", "one check, with its output"),
    ("sandbox check run TASK test -- -k name", "a part of it, where its profile allows that"),
)
@check.command("run", cls=_WithArguments)
@click.argument("task_id", metavar="TASK")
@click.argument("check_ids", metavar="ID...", nargs=-1)
@click.option("--follow", is_flag=True, help="Show the output of the checks while they run.")
@click.option("--detach", is_flag=True, help="Return at once; the checks run in the background (see check wait).")
@runtime_option
@global_options
@click.pass_obj
def run(
    invocation: Invocation,
    task_id: str,
    check_ids: tuple[str, ...],
    arguments: tuple[str, ...],
    follow: bool,
    detach: bool,
) -> int:
    """Run checks in TASK's own worktree. Checks that they require run first.

    With arguments after --, as `check list` shows them, only a part of one check runs.

    With --json, one ID prints the run of that check, or of the required check that did not pass; several IDs print
    {"runs": [...]}. With --detach the output is that of `check wait` for a run that is still running.
    """
    if detach:
        if follow:
            raise click.UsageError("Give either --follow or --detach: a detached command does not wait for output.")
        return start_detached(
            invocation,
            lambda workbench: workbench.start_checks(
                task_id, check_ids, runtime=invocation.runtime, arguments=arguments
            ),
        )
    with invocation.workbench() as workbench:
        runs = workbench.run_checks(
            task_id,
            check_ids,
            CheckProgress(follow=follow).watch(),
            runtime=invocation.runtime,
            arguments=arguments,
        )
    invocation.emit(runs[-1] if len(check_ids) == 1 else {"runs": runs}, lambda: show_runs(runs))
    return 0 if runs[-1].verdict is Verdict.PASSED else 1


@check.command()
@click.argument("owner_id", metavar="TASK|RUN")
@global_options
@click.pass_obj
def stop(invocation: Invocation, owner_id: str) -> None:
    """Stop all checks that run or wait in TASK, or one background RUN. They are recorded as killed.

    Succeeds if no check is running.
    """
    if owner_id.startswith("run-"):
        with invocation.workbench() as workbench:
            ended = workbench.stop_run(owner_id)
        invocation.emit(ended, lambda: show_background_run(ended))
        return
    with invocation.workbench() as workbench:
        found = workbench.stop_checks(owner_id)
    invocation.emit(found, lambda: _show_stopped(found))


def _show_stopped(found: StopResult) -> None:
    for check in found.stopped:
        click.echo(f"  {check.check_id:<10} {check.verdict or 'stopped: its process had died'}")
    if not found.stopped:
        click.echo(f"  no check is running in {found.task_id}")


check.add_command(wait)
check.add_command(check_runs.runs)
check.add_command(check_runs.log)
check.add_command(check_runs.results)
check.add_command(usage)
