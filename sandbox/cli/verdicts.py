"""Show check runs to a person while they happen and afterwards."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from sandbox.checks.crash import crash_of
from sandbox.cli.endings import amount, blame_of, explain
from sandbox.cli.invocation import copyable
from sandbox.models import Check, CheckRun, Verdict
from sandbox.text import Shower, one_line
from sandbox.workbench import Watch

if TYPE_CHECKING:
    from rich.status import Status as Spinner

_COLORS = {Verdict.PASSED: "green", Verdict.FAILED: "red"}
_TAIL_LINES = 15


class Progress:
    """Announces checks on stderr: a spinner on a terminal, plain lines elsewhere."""

    def __init__(self, *, follow: bool = False, lines: bool = False) -> None:
        from rich.console import Console  # noqa: PLC0415 - lazy: lists and logs of checks show no progress

        self._console = Console(stderr=True, highlight=False)
        self._spinner: Spinner | None = None
        self._follow = follow
        self._lines = follow or lines or not self._console.is_terminal
        self._running = ""
        self._showers: defaultdict[str, Shower] = defaultdict(Shower)

    def watch(self) -> Watch:
        """Callbacks for the workbench. A spinner ends with the command, also when that fails: it hides the cursor."""
        click.get_current_context().call_on_close(self._end_spinner)
        return Watch(announce=self._announce, follow=self._echo if self._follow else None, queued=self._queued)

    def _queued(self, position: int) -> None:
        """0: its turn has come."""
        text = f"waiting: {ordinal(position)} in line" if position else self._running
        if self._spinner is not None:
            self._spinner.update(text)
        elif position:
            click.echo(text, err=True)

    def _announce(self, check: Check, run: CheckRun | None) -> None:
        if run is None:
            text = self._running = f"{check.id}: {check.label} ..."
            if not self._lines:
                self._spinner = self._console.status(text)
                self._spinner.start()
            else:
                click.echo(text, err=True)
            return
        self._end_spinner()
        for shower in self._showers.values():
            sys.stderr.write(shower.finish())
        self._showers.clear()
        known = ", known already" if run.cached else ""
        click.echo(f"{check.id}: {verdict_text(run)} in {run.wall_time_s:.1f} s{known}", err=True)

    def _end_spinner(self) -> None:
        if self._spinner is not None:
            self._spinner.stop()
            self._spinner = None

    def _echo(self, stream: str, chunk: bytes) -> None:
        sys.stderr.write(self._showers[stream].feed(chunk))
        sys.stderr.flush()


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th."""
    teens = number % 100 in {11, 12, 13}
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def verdict_text(run: CheckRun) -> str:
    """The verdict in color, and what a failure is put down to where that is not the code."""
    verdict = click.style(run.verdict.value, fg=_COLORS.get(run.verdict, "yellow"), bold=True)
    return f"{verdict} ({found})" if (found := blame_of(run)) else verdict


def show_runs(runs: Sequence[CheckRun], owner_id: str | None = None) -> None:
    """One line a run; what ended it in words; for what did not pass the failing tests, or the end of its output.

    `owner_id`: whose runs they are, where it is no task.
    """
    for run in runs:
        click.echo(f"  {run.check_id:<10} {verdict_text(run)}  {run.wall_time_s:.1f} s{_facts(run)}")
        for line in explain(run):
            click.echo(copyable(f"      {line}"))
        if run.verdict is not Verdict.PASSED:
            _show_failure(run)
            _show_where(run, run.task_id or owner_id)


def _facts(run: CheckRun) -> str:
    facts = ["known already"] if run.cached else []
    if run.report is not None:
        bad = run.report.failures + run.report.errors
        counted = f"{run.report.tests} tests, {bad} failed" if bad else f"{run.report.tests} tests"
        facts.append(f"{counted} reported before a crash" if crash_of(run) else counted)
    if run.usage.memory_peak_bytes is not None:
        facts.append(f"{amount(run.usage.memory_peak_bytes)} peak")
    if run.usage.cpu_time_s is not None:
        facts.append(f"{run.usage.cpu_time_s:.1f} s CPU")
    return "  (" + ", ".join(facts) + ")" if facts else ""


def _show_failure(run: CheckRun) -> None:
    """A crash hides behind no report: its own words come first, and then the tests that failed before."""
    tests = run.report is not None and bool(run.report.failed)
    if not tests or crash_of(run) is not None:
        _show_tails(run)
    if run.report is not None and tests:
        for failure in run.report.failed[:10]:
            lines = failure.message.splitlines()
            click.echo(f"      {click.style('x', fg='red')} {one_line(failure.name)}: {lines[0] if lines else ''}")


def _show_tails(run: CheckRun) -> None:
    for name, text in (("stdout", run.stdout_tail), ("stderr", run.stderr_tail)):
        for line in text.splitlines()[-_TAIL_LINES:]:
            click.echo(f"      {name} | {line}")


def _show_where(run: CheckRun, owner_id: str | None) -> None:
    """An answer that was known already has no log of its own."""
    if owner_id is not None and not run.cached:
        click.echo(copyable(f"      all of it: sandbox check log {owner_id} {run.run_id}"))


def elapsed(started: float) -> str:
    """Seconds since a monotonic time, for people."""
    return f"{time.monotonic() - started:.1f} s"
