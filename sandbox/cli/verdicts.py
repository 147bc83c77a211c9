"""Show check runs to the user, while they run and afterwards."""

from __future__ import annotations

import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

import click

from sandbox.byte_sizes import format_bytes
from sandbox.checks.cause import FILE_FAILED
from sandbox.checks.crash import FATAL, find_crash
from sandbox.checks.missing_packages import WITHOUT, describe_missing_packages
from sandbox.cli.build_progress import BuildProgress
from sandbox.cli.invocation import Invocation, add_home, note, suggest_pages
from sandbox.cli.progress_line import ProgressClock
from sandbox.cli.run_explanations import explain, likely_cause
from sandbox.cli.terminal import StatusLine
from sandbox.lazy_pattern import lazy_pattern
from sandbox.models import Check, CheckRun, Report, TestFailure, Verdict, Verification
from sandbox.models.runs import PhaseVerdict
from sandbox.text import DisplayDecoder, neutralise, one_line
from sandbox.workbench import Watch

_COLORS = {Verdict.PASSED: "green", Verdict.FAILED: "red"}
_TAIL_LINES = 15
_CRASH_LINES = 8  # of what Python says of a crash: it names the innermost call first
_SCREEN_LINES, _SAID_LINES = 20, 3  # of failing tests of a run, and of what one of them says
_ERROR = lazy_pattern(
    r"\b(?:error(?!s)|fatal|traceback|panicked|undefined reference|cannot find|not found|no such file|not ok)\b",
    re.IGNORECASE,
)


class CheckProgress:
    """Announces checks on stderr and shows how long they have been running, or their output with `follow`.

    `parallel`: several checks run at once.
    """

    def __init__(self, *, follow: bool = False, parallel: bool = False) -> None:
        self._follow = follow
        self._parallel = parallel
        self._showers: defaultdict[str, DisplayDecoder] = defaultdict(DisplayDecoder)
        self._clock: ProgressClock | None = None
        self._status = StatusLine()

    def watch(self) -> Watch:
        """Callbacks for the workbench. The clock stops with the command, even if the command fails."""
        context = click.get_current_context()
        status = context.ensure_object(Invocation).status
        build = context.with_resource(BuildProgress(status))
        warn = partial(_repeat_at_the_end, context)
        if self._follow:
            return Watch(
                self._announce,
                follow=self._echo,
                queued=self._show_queued,
                building=build.add_line,
                warn=warn,
                waiting=partial(_show_held, status),
            )
        self._status = status
        self._clock = ProgressClock(self._status, note)
        context.call_on_close(self._clock.stop)
        if self._parallel:
            return Watch(self._announce, building=build.add_line, warn=warn)
        hear = self._clock.add_output if self._status.live else None
        return Watch(
            self._announce,
            follow=hear and (lambda _, chunk: hear(chunk)),
            queued=self._show_queued,
            building=build.add_line,
            warn=warn,
            waiting=partial(_show_held, status),
        )

    def _show_queued(self, position: int) -> None:
        """0: its turn has come."""
        text = f"waiting: {ordinal(position)} in line" if position else ""
        if self._clock is not None:
            self._clock.show_queued(text)
        if text and not self._status.live:
            note(text)

    def _announce(self, check: Check, run: CheckRun | None) -> None:
        if run is None:
            if not self._status.live:
                note(f"{check.id}: {check.label} ...")
            if self._clock is not None:
                self._clock.begin(check.id, check.timeout_s)
            return
        if self._clock is not None:
            self._clock.end(check.id)
        for shower in self._showers.values():
            sys.stderr.write(shower.finish())
        self._showers.clear()
        known = ", cached" if run.cached else ""
        note(f"{check.id}: {verdict_text(run)} in {run.wall_time_s:.1f} s{known}")

    def _echo(self, stream: str, chunk: bytes) -> None:
        with suppress(OSError, ValueError):  # the terminal is closed: the check goes on to its verdict
            sys.stderr.write(self._showers[stream].feed(chunk))
            sys.stderr.flush()


def _show_held(status: StatusLine, what: str) -> None:
    """What holds the task. On a terminal the callback for progress shows it, also while output is followed."""
    if what and not status.live:
        note(f"waiting for {what}")


def _repeat_at_the_end(context: click.Context, text: str) -> None:
    """Print it after the verdicts, too: progress has scrolled away by then, and the verdicts mean less."""
    context.call_on_close(partial(note, f"note: {text}"))


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th."""
    teens = number % 100 in {11, 12, 13}
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def verdict_text(run: CheckRun) -> str:
    """The verdict in color, with the likely cause of a failure if that is not the code."""
    verdict = click.style(run.verdict.value, fg=_COLORS.get(run.verdict, "yellow"), bold=True)
    return f"{verdict} ({found})" if (found := likely_cause(run)) else verdict


def note_uncommitted(count: int | None, what: str = "not verified: commit them and verify again") -> None:
    """Say on stderr that changes of the task are not in what was looked at, and what to do."""
    if count:
        note(f"{count} uncommitted change(s) of the task are {what}.")


NOT_LAUNCHED = "not part of the candidate: commit them and launch it again"
"""What `note_uncommitted` says of a candidate."""


def show_candidate(result: Verification, owner_id: str | None) -> None:
    """Print the runs of a candidate, with the launch and its phases, and whether it passed. Tests that it did not run
    are not said to have passed.
    """
    show_runs(result.runs, owner_id)
    word = click.style("passed", fg="green", bold=True) if result.verified else click.style("did not pass", fg="red")
    click.echo(f"candidate {word}{qualify(result.runs)}: tree {result.tree}")


def show_runs(runs: Sequence[CheckRun], owner_id: str | None = None) -> None:
    """Print one line per run and what ended it; if it did not pass, the failing tests or the end of its output.

    `owner_id`: the repository, for runs that belong to no task.
    """
    width = max((len(run.check_id) for run in runs), default=0)
    for run in runs:
        click.echo(
            f"  {run.check_id:<{max(10, width)}} {verdict_text(run)}  {run.wall_time_s:.1f} s{describe_run(run)}"
        )
        for line in describe_phases(run):
            click.echo(f"      {line}")
        for line in explain(run):
            click.echo(add_home(f"      {line}"))
        for line in run.notes:
            click.echo(f"      note: {one_line(line)}")
        if run.verdict is not Verdict.PASSED:
            _show_failure(run)
            _show_log_command(run, run.task_id or owner_id)
    missing = describe_missing_packages(runs)
    for line in missing:
        click.echo(f"  {one_line(line)}")
    for line in suggest_pages(" ".join([*(line for run in runs for line in (*explain(run), *run.notes)), *missing])):
        click.echo(f"  {line}")


def qualify(runs: Sequence[CheckRun]) -> str:
    """What stands behind the word for all runs, such as `verified`: '' if they had the packages of the project."""
    return f", {WITHOUT}" if any(run.missing_packages for run in runs) else ""


def describe_phases(run: CheckRun) -> Iterator[str]:
    """Lines about the phases of a launch, the output of one that did not pass below it; none for other checks."""
    for phase in run.phases:
        yield one_line(phase.describe())
        if phase.verdict is not PhaseVerdict.PASSED:
            yield from (f"| {line}" for line in neutralise(phase.output).splitlines()[-_TAIL_LINES:])


def describe_run(run: CheckRun) -> str:
    """Figures of a run in parentheses, after two spaces; empty without any."""
    facts = [f"only {one_line(' '.join(run.arguments))}"] if run.arguments else []
    facts += ["cached"] if run.cached else []
    if run.report is not None:
        counted = count_tests(run.report)
        counted += f", {run.report.skipped} skipped" if run.report.skipped else ""
        counted += " (not all known)" if run.results_lost else ""
        facts.append(f"{counted} reported before a crash" if find_crash(run) else counted)
    if run.usage.memory_peak_bytes is not None:
        facts.append(f"{format_bytes(run.usage.memory_peak_bytes)} peak")
    if run.usage.cpu_time_s is not None:
        facts.append(f"{run.usage.cpu_time_s:.1f} s CPU")
    return "  (" + ", ".join(facts) + ")" if facts else ""


def count_tests(report: Report) -> str:
    """How many tests a report has and how many failed, or how many errors a compiler or linter found. Pure."""
    bad = report.failures + report.errors
    if report.kind == "diagnostics":
        return f"{bad} error{'' if bad == 1 else 's'}"
    total = f"{report.tests} test{'' if report.tests == 1 else 's'}"
    return f"{total}, {bad} failed" if bad else total


def _show_failure(run: CheckRun) -> None:
    """Print the failing tests of the report, after a crash the end of the output first: the report may miss it."""
    failed = () if run.report is None else run.report.failed
    outside = any(failure.message == FILE_FAILED for failure in failed)
    if not failed or outside or find_crash(run) is not None:
        _show_tails(run)
    if run.report is not None and failed:
        for line in list_failed(run.report, run.run_id):
            click.echo(f"      {line}")


def list_failed(report: Report, run_id: str) -> list[str]:
    """The failing tests, each with its place and what it says: at most a screen, and how to see the others."""
    lines: list[str] = []
    for number, failure in enumerate(report.failed):
        said = [one_line(text) for text in failure.message.splitlines() if text.strip()][:_SAID_LINES]
        first = f"{one_line(failure.name)}{_format_location(failure)}: {said[0] if said else ''}"
        block = [f"{click.style('x', fg='red')} {first}", *(f"    {text}" for text in said[1:])]
        if len(lines) + len(block) > _SCREEN_LINES:
            more = report.failures + report.errors - number
            return [*lines, f"and {more:,} more: sandbox check results {run_id} --failed"]
        lines += block
    more = report.failures + report.errors - len(report.failed)
    return [*lines, f"and {more:,} more: sandbox check results {run_id} --failed"] if more > 0 else lines


def _show_tails(run: CheckRun) -> None:
    for name, text in (("stdout", run.stdout_tail), ("stderr", run.stderr_tail)):
        lines = neutralise(text).splitlines()
        for line in (*_find_first_error(lines[:-_TAIL_LINES]), *lines[-_TAIL_LINES:]):
            click.echo(f"      {name} | {line}")


def _find_first_error(lines: Sequence[str]) -> tuple[str, ...]:
    """The first line that looks like an error, and a mark for what is left out: later errors often follow from it. Of a
    crash of Python also where it was.
    """
    first = next((number for number, line in enumerate(lines) if _ERROR.search(line)), None)
    if first is None:
        return ()
    shown = _CRASH_LINES if lines[first].startswith(FATAL) else 1
    return (*lines[first : first + shown], *(["..."] if first + shown < len(lines) else []))


def _format_location(failure: TestFailure) -> str:
    if failure.path is None:
        return ""
    return f" ({one_line(failure.path)}{'' if failure.line is None else f':{failure.line}'})"


def _show_log_command(run: CheckRun, owner_id: str | None) -> None:
    """Print the command that shows the whole log, of stderr if that is all. A cached verdict has no log of its own."""
    if owner_id is not None and not run.cached:
        stream = " --stream stderr" if run.stderr_bytes and not run.stdout_bytes else ""
        click.echo(add_home(f"      full log: sandbox check log {owner_id} {run.run_id}{stream}"))


def format_elapsed(started: float) -> str:
    """Format the seconds since a monotonic time."""
    return f"{time.monotonic() - started:.1f} s"
