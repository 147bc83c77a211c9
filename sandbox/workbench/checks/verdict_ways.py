"""Which cached runs of a chain count, where it can run in several ways: from scratch, and with a compiler cache.

Each way has its own verdicts, but a check has one: that of its last run, whichever way it ran. A run is overruled by a
later one that ended otherwise, so an older pass opens no gate and answers no request. Of runs that overlap in time the
one that did not pass counts. A failure from scratch is replaced only by a pass from scratch (docs/adr/0189).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sandbox.models import CheckRun, Verdict
from sandbox.store.home import Home
from sandbox.store.verdicts import (
    Binding,
    began_after,
    find_last_run,
    find_verdict,
    forget_failure_ahead,
    forget_pass,
)

Bindings = Mapping[str, Binding]
"""Of the checks of one chain, by check."""


class Way(NamedTuple):
    """One way to run a chain, and the last run of each check in it; None: it has none, or another way overrules it."""

    bindings: Bindings
    runs: Mapping[str, CheckRun | None]


def find_ways(home: Home, ways: Sequence[Bindings]) -> list[Way]:
    """The ways with the runs that count."""
    found = [{name: find_last_run(home, binding) for name, binding in way.items()} for way in ways]
    return [
        Way(
            way,
            {name: None if _is_overruled(run, [each[name] for each in found]) else run for name, run in runs.items()},
        )
        for way, runs in zip(ways, found, strict=True)
    ]


def find_best_way(home: Home, ways: Sequence[Bindings]) -> Way:
    """The first way of which each check passed; else the first in which one did not, else the first that was run."""
    found = find_ways(home, ways)
    passed = (way for way in found if all(_has_passed(run) for run in way.runs.values()))
    failed = (way for way in found if any(run is not None and not _has_passed(run) for run in way.runs.values()))
    run = (way for way in found if any(way.runs.values()))
    return next(passed, None) or next(failed, None) or next(run, found[0])


def find_answer(home: Home, ways: Sequence[Bindings], number: int, check_id: str) -> CheckRun | None:
    """The verdict of a check in one of the ways, if no other way overrules it."""
    known = find_verdict(home, ways[number][check_id])
    return None if known is None or _is_overruled(known, _find_last_runs(home, ways, check_id)) else known


def has_failed(home: Home, ways: Sequence[Bindings], check_id: str) -> bool:
    """Whether the last run of a check did not pass, in any of the ways."""
    return any(run is not None and not _has_passed(run) for run in _find_last_runs(home, ways, check_id))


def forget_other_ways(home: Home, ways: Sequence[Bindings], own: Binding) -> None:
    """After a run without a verdict, delete the passes of its check in the ways that it did not run in: an older one
    may have been luck. A failure stays: what passes by chance need only time out once, and a run can be stopped.
    """
    for way in ways:
        if (other := way[own.check.id]) != own:
            forget_pass(home, other)


def settle_pass(home: Home, ways: Sequence[Bindings], own: Binding) -> bool:
    """After a pass was stored: whether no other way overrules it; else it is deleted, as it is no evidence. A failure
    that it replaces, and that is dated after now, is deleted.
    """
    for way in ways:
        other = way[own.check.id]
        if other != own and (other.compiler_cache or not own.compiler_cache):
            forget_failure_ahead(home, other)
    if not _is_overruled(find_last_run(home, own), _find_last_runs(home, ways, own.check.id)):
        return True
    forget_pass(home, own)
    return False


def _find_last_runs(home: Home, ways: Sequence[Bindings], check_id: str) -> list[CheckRun | None]:
    return [find_last_run(home, way[check_id]) for way in ways]


def _has_passed(run: CheckRun | None) -> bool:
    return run is not None and run.verdict is Verdict.PASSED


def _is_overruled(run: CheckRun | None, others: Sequence[CheckRun | None]) -> bool:
    return run is not None and any(other is not None and _overrules(other, run) for other in others)


def _overrules(other: CheckRun, run: CheckRun) -> bool:
    if _has_passed(other) == _has_passed(run):
        return False
    return _replaces(other, run) if _has_passed(other) else not _replaces(run, other)


def _replaces(passed: CheckRun, failed: CheckRun) -> bool:
    """Whether a pass replaces a failure of another way: it began later, and is from scratch if that is."""
    as_strict = passed.compiler_cache != "read" or failed.compiler_cache == "read"
    return as_strict and began_after(passed, failed)
