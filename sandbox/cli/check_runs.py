"""`sandbox check runs` and `sandbox check log`."""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from sandbox.cli.invocation import Invocation, global_options, note, show_table
from sandbox.cli.time_format import format_for_listing
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import CheckRun, LogLines, LogQuery, RunLog, StreamName, TestResult, TestResults
from sandbox.text import neutralise, one_line

if TYPE_CHECKING:
    from sandbox.workbench import Workbench


@click.command()
@click.argument("owner_id", metavar="TASK")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True,
              help="Maximum number of runs to list.")  # fmt: skip
@global_options
@click.pass_obj
def runs(invocation: Invocation, owner_id: str, limit: int) -> None:
    """List past check runs of TASK, or of a repository (`sandbox run`), newest first."""
    with invocation.workbench() as workbench:
        found = workbench.runs(owner_id, limit)
    headers = ["RUN", "CHECK", "VERDICT", "STARTED", "TOOK", "WHERE"]
    invocation.emit({"runs": found}, lambda: show_table(headers, [_row(run) for run in found]))


def _row(run: CheckRun) -> list[str]:
    return [
        run.run_id,
        " ".join([run.check_id, *(["--", one_line(" ".join(run.arguments))] if run.arguments else [])]),
        run.verdict.value,
        format_for_listing(run.started_at),
        f"{run.wall_time_s:.1f} s",
        run.place,
    ]


@click.command()
@click.argument("owner_id", metavar="TASK|RUN")
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--failed", "failed_only", is_flag=True, help="Only tests that failed.")
@global_options
@click.pass_obj
def results(invocation: Invocation, owner_id: str, run_id: str | None, failed_only: bool) -> None:
    """Show the single tests of a check run of TASK or of a repository. Default: the newest run.

    They are what the program reported of itself, as JUnit XML or by the lines that its profile knows.
    """
    pages = []
    with invocation.workbench() as workbench:
        found = workbench.find_run(owner_id, run_id)
        cursor: int | None = 0
        while cursor is not None:
            pages.append(workbench.test_results(found, failed_only=failed_only, cursor=cursor))
            cursor = pages[-1].next_cursor
    tests = tuple(result for page in pages for result in page.results)
    invocation.emit(
        pages[0].model_copy(update={"results": tests, "next_cursor": None}), lambda: _show_results(pages[0], tests)
    )


def _show_results(found: TestResults, tests: Sequence[TestResult]) -> None:
    for one in tests:
        took = "" if one.time_s is None else f"  {one.time_s:.2f} s"
        place = "" if one.path is None else f"  {one_line(one.path)}{f':{one.line}' if one.line else ''}"
        click.echo(f"  {one.outcome.value:<8} {one_line(one.test)}{took}{place}")
        for line in neutralise(one.message or "").splitlines():
            click.echo(f"           {line}")  # indented more than a row, so that no line can look like one
    if not found.complete:
        note("Not all tests of the report are here: it has more than are kept, or could not be read to its end.")


def _parse_line_range(
    _ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[int | None, int | None] | None:
    """Parse `A:B`, `A:`, `:B` or `A` to first and last line; None where the range is open."""
    if value is None:
        return None
    found = re.fullmatch(r"([0-9]{1,15})?(:)?([0-9]{1,15})?", value)
    if found is None or not (found[1] or found[3]):
        raise click.BadParameter(f"{value!r} is not a range of lines: use A:B, A: or :B", param=param)
    first, last = (int(part) if part else None for part in (found[1], found[3]))
    return first, last if found[2] else first


@click.command()
@click.argument("owner_id", metavar="TASK")
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--stream", type=click.Choice(["stdout", "stderr"]), default="stdout", show_default=True,
              help="Output stream to print.")  # fmt: skip
@click.option("--service", metavar="NAME", help="Print the output of this service of the run instead.")
@click.option("--pattern", metavar="REGEX", help="Print only lines that match this Perl-compatible regular expression.")
@click.option(
    "--lines", metavar="A:B", callback=_parse_line_range, help="Print only these lines, from 1: A:B, A: or :B."
)
@click.option("--raw", is_flag=True, help="Print the exact bytes, with terminal sequences; with --json as base64.")
@global_options
@click.pass_obj
def log(
    invocation: Invocation,
    /,
    owner_id: str,
    run_id: str | None,
    stream: StreamName,
    service: str | None,
    raw: bool,
    **part: Any,
) -> None:
    """Print the output of a check run of TASK or of a repository. Default: the newest run.

    A run id can be given instead of TASK. Terminal sequences and control characters are removed unless --raw is given.
    With --pattern each line has its number, to be used with --lines.
    """
    if part["pattern"] is not None or part["lines"] is not None:
        if service is not None:
            raise click.UsageError("--service prints the whole log: remove --pattern and --lines.")
        _print_lines(invocation, (owner_id, run_id), stream, raw, part)
        return
    with invocation.workbench() as workbench:
        found = workbench.run_log(owner_id, run_id, f"service-{service}" if service else stream, raw=raw)
        missing = "" if found.finished else _describe_missing(workbench, found.run_id)
        phases = () if missing or invocation.json else _list_phases(workbench, found.run_id)
    invocation.emit(found, lambda: _show(found, missing, raw=raw))
    for line in phases:
        note(line)  # a launch: its probes have their output here, not in the log of the application
    if found.stream == "stdout" and not found.total_bytes:
        other = f"sandbox check log {owner_id} {found.run_id} --stream stderr"
        note(f"The run wrote no output to stdout. For stderr: {invocation.add_home(other)}")


def _list_phases(workbench: Workbench, run_id: str) -> tuple[str, ...]:
    run = workbench.past_run(run_id)
    if not run.phases:
        return ()
    from sandbox.cli.verdicts import describe_phases  # noqa: PLC0415 - lazy: for launches only

    return tuple(describe_phases(run))


def _print_lines(
    invocation: Invocation, run: tuple[str, str | None], stream: StreamName, raw: bool, part: dict[str, Any]
) -> None:
    if raw:
        raise click.UsageError("--raw prints the whole log: remove --pattern and --lines.")
    first, last = part["lines"] or (None, None)
    limits = {"max_bytes": _MAX_BYTES, "max_results": _MAX_MATCHES}
    query = LogQuery(stream=stream, pattern=part["pattern"], start_line=first, end_line=last, **limits)
    with invocation.workbench() as workbench:
        found = workbench.read_log(workbench.find_run(*run), query)
        missing = _describe_missing(workbench, found.run_id) if found.note or not found.finished else ""
    invocation.emit(found, lambda: _show_lines(found, missing))


def _describe_missing(workbench: Workbench, run_id: str) -> str:
    """What the log of a run without a result may lack."""
    try:
        workbench.past_run(run_id)
    except SandboxError as error:
        if error.code is ErrorCode.NOT_FOUND:
            return f"{error.brief}."
        return "The check is still running: there may be more output."
    return "The check has ended meanwhile: there may be more output."


def _show_lines(found: LogLines, missing: str) -> None:
    click.echo(neutralise(found.content or ""), nl=False)
    for match in found.matches or ():
        click.echo(f"{match.line}: {one_line(match.text)}{' [cut]' if match.cut else ''}")
    if found.matches is not None:
        number = len(found.matches)
        note(f"{number:,} of {found.total_lines:,} lines match{_STOPPED.get(found.stopped_by or '', '')}")
    if found.truncated and found.content is not None:
        note(f"Lines {found.start_line} to {found.end_line} of {found.total_lines:,}; the result is incomplete.")
    if found.dropped_bytes:
        note(f"The run wrote {found.total_bytes:,} bytes; {found.dropped_bytes:,} in the middle were dropped.")
    if missing:
        note(missing)


_MAX_BYTES, _MAX_MATCHES = 8 * 1024**2, 10_000
_STOPPED = {
    "max_results": "; there are more matches: search part of the log with --lines",
    "time": "; the search timed out before it had read all lines",
    "pattern": "; the pattern takes too many steps on a line, so the search stopped there",
}


def _show(found: RunLog, missing: str, *, raw: bool) -> None:
    """`missing`: what it may lack. `raw`: whether the exact bytes were asked for; else what came is neutralised,
    whichever way it came.
    """
    if raw and found.encoding == "base64":
        sys.stdout.flush()
        sys.stdout.buffer.write(base64.b64decode(found.content))
        sys.stdout.buffer.flush()
    else:
        content = neutralise(found.content)
        click.echo(content, nl=not content.endswith("\n") and bool(content))
    if found.truncated:
        note(f"The run wrote {found.total_bytes:,} bytes; the middle was dropped.")
    if missing:
        note(missing)
