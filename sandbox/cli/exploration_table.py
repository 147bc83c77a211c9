"""The table of an exploration."""

from __future__ import annotations

import click

from sandbox.byte_sizes import format_bytes
from sandbox.cli.invocation import note, show_table
from sandbox.models import Exploration, ExploredWay
from sandbox.text import one_line

_HEADERS = ["RANK", "WAY", "NEWLY FAILING", "FAILING", "CHANGED", "TIME", "MEMORY", "SNAPSHOT"]


def show_exploration(found: Exploration) -> None:
    """Print one row for each way, the best first, then what became of the task."""
    show_table(_HEADERS, [_row(way) for way in found.ways])
    for way in found.ways:
        if way.problem is not None:
            note(f"note: {one_line(way.name)}: {one_line(way.problem)}")
        elif way.newly_failing_tests:
            more = way.newly_failing - len(way.newly_failing_tests)
            note(f"note: {one_line(way.name)} breaks {one_line(', '.join(way.newly_failing_tests))}"
                 + (f" and {more} more" if more else ""))  # fmt: skip
    if found.winner is not None:
        done = f"; {found.task_id} has its state now" if found.restored else ""
        click.echo(f"{click.style('best', fg='green', bold=True)}: {one_line(found.winner)}{done}")
    else:
        click.echo(click.style("none is good", fg="red"))
    if found.note:
        note(f"note: {found.note}")


def _row(way: ExploredWay) -> list[str]:
    if way.problem is not None:
        return ["-", one_line(way.name), "-", "-", "-", "-", "-", way.snapshot or "-"]
    broken = str(way.newly_failing) + (f" and {way.missing} missing" if way.missing else "")
    changed = f"+{way.additions} -{way.deletions} in {way.files} file{'' if way.files == 1 else 's'}"
    memory = "-" if way.memory_peak_bytes is None else format_bytes(way.memory_peak_bytes)
    return [
        str(way.rank), one_line(way.name), broken, str(way.failing), changed, f"{way.wall_time_s:.1f} s", memory,
        way.snapshot or "-",
    ]  # fmt: skip
