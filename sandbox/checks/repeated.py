"""Runs of a check on one tree, added up test by test: which of them failed and passed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sandbox.checks.comparison import WHOLE, CheckSide, Reruns, tally_results
from sandbox.models import CheckRun, Verdict
from sandbox.models.flaky import FlakyTest


def add_up(sides: Sequence[CheckSide]) -> dict[str, Reruns]:
    """How often each test ran and failed. A check without test results is one test, `WHOLE`, if it ended by itself."""
    found: dict[str, Reruns] = {}

    def add(name: str, side: CheckSide, *, failed: bool) -> None:
        before = found.get(name, Reruns(0, 0))
        passed = before.passed_among_all or not (failed or (side.run is not None and side.run.arguments))
        found[name] = Reruns(before.ran + 1, before.failed + failed, passed)

    for side in sides:
        for name, tally in tally_results(side.results or ()).items():
            if tally.ran:
                add(name, side, failed=tally.bad > 0)
        if side.results is None and side.verdict in {Verdict.PASSED, Verdict.FAILED}:
            add(WHOLE, side, failed=side.verdict is Verdict.FAILED)
    return found


def find_flaky(check_id: str, tree: str, sides: Sequence[CheckSide], now: datetime) -> tuple[FlakyTest, ...]:
    """The tests that failed in one of these runs and passed in another."""
    remark = explain(sides)
    return tuple(
        FlakyTest(
            check_id=check_id,
            test=name,
            ran=reruns.ran,
            failed=reruns.failed,
            tree=tree,
            first_seen=now,
            last_seen=now,
            remark=remark,
        )
        for name, reruns in add_up(sides).items()
        if reruns.is_flaky
    )


def explain(sides: Sequence[CheckSide]) -> str:
    """What the runs say about the cause. Each had a fresh room, so leftovers of a run are none."""
    runs = [side.run for side in sides if side.run is not None]
    alone, together = ([run for run in runs if bool(run.arguments) is part] for part in (True, False))
    if not alone:
        return f"the same command gave both: chance, time or load, or the order if it was shuffled; {_FRESH}"
    if _any_failed(alone):
        return f"it gave both, or failed, without the other tests, too: time or chance; {_FRESH}"
    if _any_failed(together):
        return f"it failed among the other tests and passed without them: their order or traces, or load; {_FRESH}"
    return _FRESH


_FRESH = "each run had a fresh room, so leftovers of an earlier run are not the cause"


def _any_failed(runs: Sequence[CheckRun]) -> bool:
    return any(run.verdict is Verdict.FAILED for run in runs)
