"""`sandbox top`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from sandbox.byte_sizes import format_bytes
from sandbox.cli.invocation import Invocation, global_options, note, show_table
from sandbox.cli.task_rows import shorten_task_id
from sandbox.cli.terminal import is_interactive
from sandbox.text import one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sandbox.models import Guest, GuestTable

_FIRST_LOOK_S = 0.25
"""Between the two looks of one answer: CPU time is a rate."""

_SHOWN_OWNERS = 3
_HEADERS = ["GUEST", "KIND", "RUNS", "CPU", "MEMORY", "PIDS", "AGE"]


@click.command()
@click.option("--interval", type=click.FloatRange(min=0.2, max=3600), default=1.0, show_default=True, metavar="SECONDS",
              help="Time between two refreshes.")  # fmt: skip
@click.option("--once", is_flag=True, help="Print the table once, as is done without a terminal.")
@global_options
@click.pass_obj
def top(invocation: Invocation, interval: float, once: bool) -> None:
    """Show the guests that exist now and what they use of their limits. Ends with q or Ctrl-C.

    Without a terminal, and with --json, the table is printed once.
    """
    with invocation.workbench() as workbench:
        before = workbench.guests()
        if invocation.json or once or not is_interactive(sys.stdout):
            time.sleep(_FIRST_LOOK_S)
            found = workbench.guests(before)
            invocation.emit(found, lambda: _show_once(found))
            return
        from sandbox.cli.live_view import show_live  # noqa: PLC0415 - only here, and it needs a terminal

        view = _LiveTable(before)
        show_live(lambda: view.draw(workbench.guests(view.shown)), interval)


class _LiveTable:
    """What the live table shows."""

    def __init__(self, shown: GuestTable) -> None:
        self.shown = shown

    def draw(self, found: GuestTable) -> RenderableType:
        from rich.console import Group  # noqa: PLC0415 - only on a terminal, where it is loaded already
        from rich.text import Text  # noqa: PLC0415 - as above

        from sandbox.cli.tables import build_table  # noqa: PLC0415 - as above

        self.shown = found
        heading = Text(f"sandbox top - {found.at.astimezone():%H:%M:%S} - {_summarize(found)}", no_wrap=True)
        return Group(heading, Text(), build_table(_HEADERS, [_row(g) for g in found.guests]), Text("q: quit", "dim"))


def _show_once(found: GuestTable) -> None:
    show_table(_HEADERS, [_row(guest) for guest in found.guests])
    note(_summarize(found))


def _summarize(found: GuestTable) -> str:
    busy = sum(guest.busy for guest in found.guests)
    spare = sum(guest.kind.value == "spare" for guest in found.guests)
    idle = f"{len(found.guests) - busy - spare} idle, " + (f"{spare} spare, " if spare else "")
    parts = [f"{busy} running, {idle}{found.waiting} waiting{_name_owners(found)}"]
    if found.memory_bytes is not None:
        parts.append(f"memory of all guests {_of(format_bytes(found.memory_bytes), found.memory_limit_bytes)}")
    return " - ".join(parts)


def _name_owners(found: GuestTable) -> str:
    """Who waits, the next one first, each owner once."""
    owners = list(dict.fromkeys(shorten_task_id(one_line(one.owner)) for one in found.queue))
    if not owners:
        return ""
    more = f" and {len(owners) - _SHOWN_OWNERS} more" if len(owners) > _SHOWN_OWNERS else ""
    return f" ({', '.join(owners[:_SHOWN_OWNERS])}{more})"


def _row(guest: Guest) -> list[str]:
    cpu = "-" if guest.cpus_used is None else f"{guest.cpus_used:.2f}"
    limit = "-" if guest.cpus_limit is None else f"{guest.cpus_limit:g}"
    memory = "-" if guest.memory_bytes is None else format_bytes(guest.memory_bytes)
    pids = "-" if guest.pids is None else str(guest.pids)
    return [
        shorten_task_id(one_line(guest.owner or guest.container)),
        guest.kind.value if guest.service is None else f"{guest.kind.value} {one_line(guest.service)}",
        one_line(", ".join(guest.check_ids)) or _name_state(guest),
        f"{cpu} of {limit}",
        _of(memory, guest.memory_limit_bytes),
        f"{pids} of {guest.pids_limit or '-'}",
        "-" if guest.age_s is None else _format_age(guest.age_s),
    ]


def _name_state(guest: Guest) -> str:
    if guest.kind.value == "spare":
        return "-"
    return "yes" if guest.busy else "idle"


def _of(used: str, limit: int | None) -> str:
    return f"{used} of {'-' if limit is None else format_bytes(limit)}"


def _format_age(seconds: float) -> str:
    hours, minutes = divmod(int(seconds) // 60, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {int(seconds) % 60:02} s" if minutes else f"{int(seconds)} s"
