"""`sandbox file search`: find lines and paths in the files of a task or commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sandbox.cli.invocation import Invocation, global_options, note
from sandbox.cli.readable_owner import OWNER_METAVAR, find_owner
from sandbox.lazy_module import LazyModule
from sandbox.text import one_line

if TYPE_CHECKING:
    from sandbox.models import search as search_models
else:  # loaded by a search: other commands on files are in one group with it
    search_models = LazyModule("sandbox.models.search")

_STOPPED = {
    "max_results": "there are more results: raise --max-results",
    "time": "the search timed out before it had read all files: raise --timeout",
}


@click.command()
@click.argument("owner", metavar=OWNER_METAVAR)
@click.argument("pattern", required=False)
@click.option("--glob", help="Only paths that match, as in .gitignore, with {a,b}. Without PATTERN, list them.")
@click.option("--regex", is_flag=True, help="Treat PATTERN as a Perl-compatible regular expression.")
@click.option("--ignore-case", is_flag=True, help="Ignore upper and lower case.")
@click.option("--include-ignored", is_flag=True, help="Also search untracked files that .gitignore excludes.")
@click.option("--max-results", type=int, default=200, show_default=True, help="Maximum lines (or paths) to print.")
@click.option("--timeout", "timeout_s", type=float, default=10.0, show_default=True, help="Maximum seconds to search.")
@global_options
@click.pass_obj
def search(invocation: Invocation, /, owner: str, **query: Any) -> None:
    """Find PATTERN in the current files of TASK, or in a commit of REPO: a branch, tag or commit id, by default the
    default branch. Put a pattern that starts with '-' after '--'.
    """
    wanted = search_models.SearchQuery(**query)
    with invocation.workbench() as workbench:
        owner_id, ref = find_owner(workbench, owner)
        found = (
            workbench.search(owner_id, wanted) if ref is None else workbench.search_commit(owner_id, wanted, ref=ref)
        )
    invocation.emit(found, lambda: _show(found))


def _show(result: search_models.SearchResult) -> None:
    for hit in result.hits:
        click.echo(f"{one_line(hit.path)}:{hit.line}: {one_line(hit.text)}{' [cut]' if hit.cut else ''}")
    with_lines = {hit.path for hit in result.hits}
    for path in result.files:
        if not result.hits and not result.skipped.binary:
            click.echo(one_line(path))
        elif path not in with_lines:
            click.echo(f"{one_line(path)}: binary file matches")
    note(_summary(result))


def _summary(result: search_models.SearchResult) -> str:
    files = _format_count(len(result.files), "file")
    parts = [f"{_format_count(len(result.hits), 'hit')} in {files}" if result.hits else files]
    if result.skipped.too_large:
        parts.append(f"{result.skipped.too_large} too large to search")
    if result.skipped.ignored:
        parts.append(f"{result.skipped.ignored} ignored files not searched")
    if result.stopped_by in _STOPPED:
        parts.append(_STOPPED[result.stopped_by])
    if result.note:
        parts.append(one_line(result.note))  # a worker of a cluster may have answered
    return "; ".join(parts)


def _format_count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
