"""`sandbox watch`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sandbox.cli.invocation import Invocation, event_options, note, to_json
from sandbox.cli.run_explanations import explain
from sandbox.cli.verdicts import describe_run, verdict_text
from sandbox.models import TaskEventKind
from sandbox.text import neutralise, one_line

if TYPE_CHECKING:
    from sandbox.models import JournalEntry, TaskEvent

_SHOWN_NAMES = 3


@click.command()
@click.argument("task_id", metavar="TASK")
@event_options
@click.pass_obj
def watch(invocation: Invocation, task_id: str) -> None:
    """Follow what happens in TASK from now on: edits and other operations, checks with their output, verdicts.

    Ends with Ctrl-C, or when the task is closed.
    """
    show = _show_json if invocation.json else _show
    with invocation.workbench() as workbench:
        task = workbench.task(task_id)
        note(f"watching {task.id}; end with Ctrl-C")
        try:
            for event in workbench.watch_task(task.id):
                show(event)
        except KeyboardInterrupt:
            return


def _show_json(event: TaskEvent) -> None:
    click.echo(to_json(event))


def _show(event: TaskEvent) -> None:
    at = f"{event.at.astimezone():%H:%M:%S}"
    check = one_line(event.check_id or event.run_id or "")
    if event.kind is TaskEventKind.OUTPUT:
        for line in neutralise(event.text or "").splitlines():
            click.echo(f"{click.style(f'{check} |', dim=True)} {line}")
    elif event.operation is not None:
        click.echo(f"{at}  {_describe_operation(event.operation)}")
    elif event.run is not None:
        click.echo(
            f"{at}  {check}: {verdict_text(event.run)} in {event.run.wall_time_s:.1f} s{describe_run(event.run)}"
        )
        for line in explain(event.run):
            click.echo(f"          {line}")
    elif event.kind is TaskEventKind.STARTED:
        click.echo(f"{at}  {check}: started ({one_line(event.run_id or '')})")
    elif event.kind is TaskEventKind.LOST:
        click.echo(f"{at}  {check}: ended without a verdict, as what ran it was killed or failed")
    else:
        click.echo(f"{at}  the task was closed")


def _describe_operation(entry: JournalEntry) -> str:
    names = [one_line(name) for name in entry.names if name]
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    which = f" {', '.join(names[:_SHOWN_NAMES])}{more}" if names else ""
    result = "" if entry.result == "ok" else click.style(f": {one_line(entry.result)}", fg="red")
    return f"{click.style(entry.operation, bold=True)}{which} ({entry.actor.value}){result}"
