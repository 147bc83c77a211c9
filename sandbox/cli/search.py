"""`sandbox file search`: find lines and paths in a task's files."""

from __future__ import annotations

from typing import Any

import click

from sandbox.cli.invocation import Invocation, global_options, note
from sandbox.models import SearchQuery, SearchResult
from sandbox.text import one_line

_STOPPED = {
    "max_results": "there is more: raise --max-results",
    "time": "the time was up before all files were searched: raise --timeout",
    "pattern": "the pattern takes too many steps on a line, so the rest was not searched",
}


@click.command()
@click.argument("task_id", metavar="TASK")
@click.argument("pattern", required=False)
@click.option("--glob", help="Only paths that match, as in .gitignore, with {a,b}; without PATTERN: list them.")
@click.option("--regex", is_flag=True, help="PATTERN is a Perl-compatible regular expression, not text.")
@click.option("--ignore-case", is_flag=True, help="Upper and lower case are the same.")
@click.option("--include-ignored", is_flag=True, help="Also untracked files that .gitignore leaves out.")
@click.option("--max-results", type=int, default=200, show_default=True, help="Most lines (or paths) to print.")
@click.option("--timeout", "timeout_s", type=float, default=10.0, show_default=True, help="Most seconds to search.")
@global_options
@click.pass_obj
def search(invocation: Invocation, /, task_id: str, **query: Any) -> None:
    """Find PATTERN in TASK's files as they are now; a pattern that begins with '-' goes after '--'."""
    with invocation.workbench() as workbench:
        result = workbench.search(task_id, SearchQuery(**query))
    invocation.emit(result, lambda: _show(result))


def _show(result: SearchResult) -> None:
    for hit in result.hits:
        click.echo(f"{one_line(hit.path)}:{hit.line}: {one_line(hit.text)}{' [cut]' if hit.cut else ''}")
    with_lines = {hit.path for hit in result.hits}
    for path in result.files:
        if not result.hits and not result.skipped.binary:
            click.echo(one_line(path))
        elif path not in with_lines:
            click.echo(f"{one_line(path)}: binary file matches")
    note(_summary(result))


def _summary(result: SearchResult) -> str:
    files = _counted(len(result.files), "file")
    parts = [f"{_counted(len(result.hits), 'hit')} in {files}" if result.hits else files]
    if result.skipped.too_large:
        parts.append(f"{result.skipped.too_large} too large to search")
    if result.skipped.ignored:
        parts.append(f"{result.skipped.ignored} ignored ones left out")
    if result.stopped_by is not None:
        parts.append(_STOPPED[result.stopped_by])
    return "; ".join(parts)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
