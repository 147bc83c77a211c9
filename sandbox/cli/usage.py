"""`sandbox check usage`: draw what a run used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import click

from sandbox.byte_sizes import format_bytes
from sandbox.cli.invocation import Invocation, global_options
from sandbox.cli.streams import TextStream
from sandbox.limit_shares import format_share, is_near_limit

if TYPE_CHECKING:
    from sandbox.models import UsageSample, UsageSeries

_COLUMNS = 60
_BARS = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
_DIGITS = " 12345678"
"""For terminals without block characters."""

_SCALE = "a full bar is the limit, or the most that was used where that is under a quarter of it"


@click.command()
@click.argument("owner_id", metavar="TASK|RUN")
@click.argument("run_id", metavar="[RUN]", required=False)
@global_options
@click.pass_obj
def usage(invocation: Invocation, owner_id: str, run_id: str | None) -> None:
    """Draw what a check run of TASK used of CPU, memory, processes and disk, each against its limit.

    Default: the newest run. A run id can be given instead of TASK, or the id of a repository.

    A full bar is the limit; where the run stayed below a quarter of it, a full bar is the largest value.

    `disk` is what its files held. `written` has no limit: what was deleted or written again is in it.
    """
    with invocation.workbench() as workbench:
        found = workbench.usage(workbench.find_run(owner_id, run_id))
    invocation.emit(found, lambda: _show(found))


def _show(found: UsageSeries) -> None:
    samples, limits = found.samples, found.limits
    length_s = samples[-1].at_s if samples else 0.0
    click.echo(f"{found.check_id}: {len(samples)} samples in {length_s:.1f} s; {_SCALE}")
    times = [sample.at_s for sample in samples]
    cpus = to_rate(samples)
    _show_row("cpu", times[1:], cpus, limits.cpus, lambda value: f"{round(value, 2):g}")
    _show_row("memory", times, [s.memory_bytes for s in samples], limits.memory_bytes, format_bytes)
    _show_row("processes", times, [s.pids for s in samples], limits.pids, lambda value: f"{value:.0f}")
    _show_row("disk", times, [s.disk_used_bytes for s in samples], limits.disk_bytes, format_bytes)
    _show_row("written", times, [s.disk_written_bytes for s in samples], None, format_bytes)


def _show_row(
    name: str,
    times: Sequence[float],
    values: Sequence[float | None],
    limit: float | None,
    describe: Callable[[float], str],
) -> None:
    """`limit` None: there is none, and a full bar is the largest value, as it is far below a limit."""
    known = [value for value in values if value is not None]
    if not known:
        click.echo(f"{name:9}  not counted on this host")
        return
    highest = max(known)
    top = limit if limit is not None and is_near_limit(highest, limit) else highest
    bars = draw(times, [value or 0.0 for value in values], top, _choose_bars())
    bound = ", no limit" if limit is None else f" of {describe(limit)} ({format_share(highest, limit)})"
    click.echo(f"{name:9} |{bars}| at most {describe(highest)}{bound}")


def to_rate(samples: Sequence[UsageSample]) -> list[float | None]:
    """The CPUs in use between two samples, for each sample but the first."""
    rates: list[float | None] = []
    for one, next_one in pairwise(samples):
        if one.cpu_time_s is None or next_one.cpu_time_s is None or next_one.at_s <= one.at_s:
            rates.append(None)
        else:
            rates.append(max(0.0, next_one.cpu_time_s - one.cpu_time_s) / (next_one.at_s - one.at_s))
    return rates


def draw(times: Sequence[float], values: Sequence[float], limit: float, bars: str, columns: int = _COLUMNS) -> str:
    """One column for each part of the time, with the largest value in it; parts without a sample repeat the last.

    A full bar is `limit`.
    """
    if not times:
        return ""
    highest = [-1.0] * columns
    for at, value in zip(times, values, strict=True):
        column = min(columns - 1, int(at / (times[-1] or 1.0) * columns))
        highest[column] = max(highest[column], value)
    line, last = "", values[0]
    for value in highest:
        last = value if value >= 0 else last
        share = min(1.0, last / limit) if limit else 0.0
        line += bars[max(1 if last > 0 else 0, round(share * (len(bars) - 1)))]
    return line


def _choose_bars() -> str:
    if isinstance(sys.stdout, TextStream) and sys.stdout.is_for_ascii:
        return _DIGITS
    try:
        _BARS.encode(sys.stdout.encoding)
    except (UnicodeEncodeError, LookupError):
        return _DIGITS
    return _BARS
