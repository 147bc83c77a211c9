"""`sandbox events`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from sandbox.cli.invocation import Invocation, event_options, note, to_json
from sandbox.text import one_line

if TYPE_CHECKING:
    from sandbox.models import HomeEvent

_SHOWN_NAMES = 5
_COMPARED_NAMES = 50


@click.command()
@click.option("--follow", is_flag=True, help="Also print what happens from now on, until Ctrl-C.")
@click.option(
    "--limit", type=click.IntRange(0, 10_000), default=100, show_default=True, help="Maximum number of past events."
)
@event_options
@click.pass_obj
def events(invocation: Invocation, follow: bool, limit: int) -> None:
    """Print what happened in this home: tasks, checks, approvals, pushes, pull requests, disk."""
    show = _show_json if invocation.json else _show
    with invocation.workbench() as workbench:
        past = workbench.events(limit)
        for event in past:
            show(event)
        if follow:
            note("following; end with Ctrl-C")
            _follow(workbench.follow_events(), show)


def _follow(found: Iterator[HomeEvent | None], show: Callable[[HomeEvent], None]) -> None:
    try:
        for event in found:
            if event is not None:
                show(event)
    except KeyboardInterrupt:
        return


def _show_json(event: HomeEvent) -> None:
    click.echo(to_json(event))


def _show(event: HomeEvent) -> None:
    entry = event.operation
    result = "" if entry.result == "ok" else click.style(f": {one_line(entry.result)}", fg="red")
    kind = click.style(f"{event.kind.value:10}", dim=True)
    what = describe_operation(event).replace(entry.operation, click.style(entry.operation, bold=True), 1)
    click.echo(f"{event.at.astimezone():%F %T}  {kind}  {what}{result}")


def describe_operation(event: HomeEvent) -> str:
    """What was done, to which task, and what it is about: each name once."""
    entry = event.operation
    about = f" of {event.task_id}" if event.task_id else ""
    all_names = event.list_names()
    names = [one_line(name) for name in all_names[:_COMPARED_NAMES]]
    names = [name for name in names if not any(other.startswith(f"{name} ") for other in names)]  # test, test passed
    hidden = len(names) + len(all_names[_COMPARED_NAMES:]) - _SHOWN_NAMES
    more = f" and {hidden} more" if hidden > 0 else ""
    which = f" {', '.join(names[:_SHOWN_NAMES])}{more}" if names else ""
    return f"{entry.operation}{about}{which}"
