"""`sandbox history`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from sandbox.byte_sizes import format_bytes
from sandbox.cli.invocation import Invocation, add_home, global_options, note, show_table
from sandbox.cli.time_format import format_for_listing
from sandbox.models import CommitVerdicts, HistoryRun, RepositoryHistory, Verdict
from sandbox.text import one_line

_BARS = "▁▂▃▄▅▆▇█"
_MARKS = {Verdict.PASSED: "✓", Verdict.FAILED: "✗"}
_NO_VALUE = "·"


@click.command()
@click.argument("repo_id", metavar="REPO")
@click.option("--ref", default="HEAD", show_default=True, metavar="REF", help="A branch, tag or commit.")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="How many commits.")
@global_options
@click.pass_obj
def history(invocation: Invocation, repo_id: str, ref: str, limit: int) -> None:
    """Show what is known of the checks of REPO's last commits: verdicts, time, memory, size.

    It runs no check: `sandbox run URL --ref COMMIT` fills a gap. In the lines, the newest commit is on the right.
    """
    with invocation.workbench() as workbench:
        found = workbench.history(repo_id, ref, limit)
    invocation.emit(found, lambda: _show(found))


def _show(found: RepositoryHistory) -> None:
    oldest_first = found.commits[::-1]
    for check_id in sorted({run.check_id for commit in oldest_first for run in commit.runs}):
        runs = [next((run for run in commit.runs if run.check_id == check_id), None) for commit in oldest_first]
        click.echo(f"  {check_id}")
        click.echo(f"    verdict {''.join(_mark(run) for run in runs)}")
        click.echo(f"    time    {_line(runs, lambda run: run.wall_time_s, lambda value: f'{value:.1f} s')}")
        click.echo(f"    memory  {_line(runs, lambda run: run.memory_peak_bytes, format_bytes)}")
    sizes = [commit.size_bytes for commit in oldest_first]
    click.echo(f"  size      {sparkline(sizes)}  {_range(sizes, format_bytes)}")
    show_table(["COMMIT", "WHEN", "VERDICTS", "TIME", "SIZE", "SUBJECT"], [_row(commit) for commit in found.commits])
    unknown = sum(not commit.runs for commit in found.commits)
    if unknown:
        note(add_home(f"{unknown} of {len(found.commits)} commits have no verdict: sandbox run URL --ref COMMIT"))


def sparkline(values: Sequence[float | None]) -> str:
    """A bar for each value, between the least and the greatest; a dot where there is none. Pure."""
    known = [value for value in values if value is not None]
    low, high = min(known, default=0), max(known, default=0)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0
    return "".join(_NO_VALUE if value is None else _BARS[round((value - low) * scale)] for value in values)


def _line(
    runs: Sequence[HistoryRun | None],
    read: Callable[[HistoryRun], float | None],
    show: Callable[[float], str],
) -> str:
    values = [None if run is None else read(run) for run in runs]
    return f"{sparkline(values)}  {_range(values, show)}"


def _range(values: Sequence[float | None], show: Callable[[float], str]) -> str:
    known = [value for value in values if value is not None]
    return f"{show(min(known))} to {show(max(known))}" if known else "unknown"


def _mark(run: HistoryRun | None) -> str:
    return _NO_VALUE if run is None else _MARKS.get(run.verdict, "!")


def _row(commit: CommitVerdicts) -> list[str]:
    verdicts = " ".join(f"{run.check_id} {run.verdict.value}" for run in commit.runs)
    took = f"{sum(run.wall_time_s for run in commit.runs):.1f} s" if commit.runs else "-"
    size = "-" if commit.size_bytes is None else format_bytes(commit.size_bytes)
    when = format_for_listing(commit.committed_at)
    return [commit.commit[:12], when, verdicts or "-", took, size, one_line(commit.subject)[:60]]
