"""`sandbox doctor --attack`: each result on stderr when it is there, then a table and a summary on stdout."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

import click

from sandbox.cli.invocation import Invocation, note, show_table
from sandbox.errors import SandboxError
from sandbox.models import AttackOutcome, AttackReport, AttackResult, Threat, ThreatState
from sandbox.store.home import Home, default_home, resolve_home
from sandbox.text import neutralise

_COLORS = {AttackOutcome.HELD: "green", AttackOutcome.SKIPPED: "cyan", AttackOutcome.GOT_THROUGH: "red"}
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
_WORDS = {AttackOutcome.GOT_THROUGH: "GOT THROUGH"}


def run_attacks(invocation: Invocation, only: Sequence[str]) -> int:
    """Run the attacks and return the exit code: 0 if attacks could be tried and each was stopped, else 1."""
    from sandbox.attack import attack  # noqa: PLC0415 - lazy: the plain `doctor` does not load the suite

    note("Attacking this host from a temporary home; your repositories are not touched.")
    note("Controls show that an attack works where protection is off: they run unhardened containers.")
    report = attack(invocation.home, only, on_result=_ResultPrinter())
    _record(invocation, report)
    invocation.emit(report, lambda: show(report))
    return 0 if report.safe else 1


def explain_attacks(invocation: Invocation, only: Sequence[str]) -> int:
    """Print the list of threats and return 0. No attack runs, so no engine is needed."""
    from sandbox.attack import explain  # noqa: PLC0415 - as above

    threats = explain(only)
    invocation.emit({"threats": threats}, lambda: _show_threats(threats))
    return 0


def _show_threats(threats: Sequence[Threat]) -> None:
    width = shutil.get_terminal_size().columns
    for threat in threats:
        _line(f"{threat.id:<5} ", threat.attack, width)
        for name, text in _describe_threat(threat):
            _line(f"      {name:<8} ", text, width)
    shipped = sum(threat.ships for threat in threats)
    counts = Counter(threat.state for threat in threats)
    states = ", ".join(f"{counts[state]} {state.value}" for state in ThreatState if counts[state])
    click.echo(f"{len(threats)} entries: {states}; `sandbox doctor --attack` runs {shipped} of them")


def _describe_threat(threat: Threat) -> Iterator[tuple[str, str]]:
    yield "stops", threat.stops or "no protection yet"
    yield "control", threat.control or "not part of `sandbox doctor --attack`"
    yield "state", f"{threat.state.value}{f': {threat.remark}' if threat.remark else ''}"
    yield "tests", threat.tests or "none"


def _line(label: str, text: str, width: int) -> None:
    """Print a wrapped text after its label; Markdown links become paths."""
    plain = _LINK.sub(r"\1 (docs/\2)", text)
    click.echo(click.wrap_text(plain, width, click.style(label, bold=True), " " * len(label)))


def _record(invocation: Invocation, report: AttackReport) -> None:
    """Record the report in the home's journal if the home exists. The report matters more, so a failure is ignored."""
    home = resolve_home(invocation.home or default_home(os.environ))
    if Home(home).journal_head.parent.is_dir():
        with suppress(SandboxError), invocation.workbench() as workbench:
            workbench.record_attacks(report)


class _ResultPrinter:
    """Prints one line for each result."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, result: AttackResult, total: int) -> None:
        self._count += 1
        width = len(str(total))
        note(f"{self._count:>{width}}/{total}  {result.id:<4} {_word(result)}  {result.title}")


def show(report: AttackReport) -> None:
    """Print the table, what is known of each attack that was not stopped, and the summary."""
    show_table(
        ["id", "attack", "tried", "control", "outcome"],
        [[r.id, r.title, _short(r.tried), _short(r.control), _plain_word(r)] for r in report.results],
    )
    for result in report.results:
        if result.outcome is not AttackOutcome.HELD:
            click.echo(f"{result.id} {_word(result)}: {neutralise(result.seen)}")
    click.echo(summary(report))


def summary(report: AttackReport) -> str:
    """The last line of the output."""
    unknown = "not proven" if report.held + report.void + report.errors else "not proven, none could be tried here"
    verdict = "safe" if report.safe else "NOT SAFE" if report.got_through else unknown
    counts = [f"{report.held} held", f"{report.got_through} got through", f"{report.void} void"]
    counts += [f"{report.skipped} skipped"] * bool(report.skipped) + [f"{report.errors} errors"] * bool(report.errors)
    where = f"git {report.git}" + (
        f", Docker {report.engine}, {report.runtime}" if report.engine else ", no containers"
    )
    return f"{verdict}: {', '.join(counts)}; {report.wall_time_s:.0f} s on {where}"


def _plain_word(result: AttackResult) -> str:
    return _WORDS.get(result.outcome, result.outcome.value)


def _word(result: AttackResult) -> str:
    return click.style(_plain_word(result), fg=_COLORS.get(result.outcome, "yellow"), bold=True)


def _short(text: str, max_chars: int = 60) -> str:
    line = " ".join(neutralise(text).split())
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"
