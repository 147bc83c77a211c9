"""What happens on a task's tree while the other tree is checked: a comparison has not seen it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from sandbox.models import CheckRun, Verdict
from sandbox.store.home import Home
from sandbox.store.kept_comparisons import find_comparison
from sandbox.store.records import save_run
from sandbox.store.verdicts import find_last_run, save_verdict
from sandbox.workbench import VerifyOptions
from sandbox.workbench.checks import differential, gate, repetition, verify
from sandbox.workbench.checks.clean_rooms import VerifyRequest
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk
from tests.unit.receipt_samples import made_binding, made_run
from tests.unit.workbench.checks.test_verify import PROFILE

P, F, K, T = Verdict.PASSED, Verdict.FAILED, Verdict.KILLED, Verdict.TIMED_OUT
BINDING = made_binding("test")


def made(number: int, verdict: Verdict, *, cached: bool = False) -> CheckRun:
    began = datetime(2026, 2, 3, tzinfo=UTC) + timedelta(hours=number)
    code = {P: 0, F: 1}.get(verdict)
    return made_run("test", verdict, run_id=f"run-{number:032x}", started_at=began, exit_code=code, cached=cached)


class Trees:
    """Answers for the clean rooms. `own`: the verdicts of the task's tree, in order, which are cached; the base fails
    as it does. `meanwhile`: of another request on the task's tree, while the base's check runs.
    """

    def __init__(self, desk: Desk, own: list[Verdict], meanwhile: Verdict | None, base: Verdict) -> None:
        self.desk, self.own, self.meanwhile, self.base, self.ran = desk, own, meanwhile, base, 0
        self.home = Home(desk.home)

    def run(self, _services: object, _source: object, request: VerifyRequest, *_: object) -> tuple[CheckRun, ...]:
        self.ran += 1
        own = request.owner == self.desk.task.id
        run = made(self.ran, self.own.pop(0) if own else self.base)
        self.home.logs(request.owner).mkdir(parents=True, exist_ok=True)
        save_run(self.home, request.owner, run)
        if own and (request.keep or run.verdict is not P):
            save_verdict(self.home, BINDING, run)
        elif not own and self.meanwhile is not None:
            save_verdict(self.home, BINDING, made(90, self.meanwhile))
        return (run,)

    @property
    def last(self) -> dict[str, CheckRun | None]:
        return {"test": find_last_run(self.home, BINDING)}

    @property
    def opens(self) -> bool:
        kept = find_comparison(self.home, ("b",), ("k",), self.last)
        return kept is not None and kept.no_new_failures


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    (tmp_path / "home" / "profiles").mkdir(parents=True)
    (tmp_path / "home" / "profiles" / "own.toml").write_text(PROFILE)
    found = Desk(upstream, tmp_path / "home")
    yield found
    found.workbench.__exit__(None, None, None)


class Case(NamedTuple):
    own: tuple[Verdict, ...]
    meanwhile: Verdict | None
    base: Verdict
    opens: bool


CASES = {
    "control: passed": Case((P,), None, P, True),
    "control: the base fails too": Case((F,), None, F, True),
    "control: in each of its rounds": Case((F, F, F), None, F, True),
    "control: both end without a verdict": Case((T,), None, T, True),
    "control: a rerun fails too, one passes": Case((F, P, F), None, P, True),
    "a failure": Case((P,), F, P, False),
    "a run without a verdict": Case((P,), K, P, False),
    "another failure than the one that was compared": Case((F,), F, F, False),
    "a pass": Case((F,), P, F, True),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_failure_while_the_base_is_checked_ends_the_comparison(
    case: Case, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate with `accept = "no-new-failures"` takes a comparison that is not older than a failure."""
    trees = Trees(desk, list(case.own), case.meanwhile, case.base)
    for module in (verify, differential, repetition):
        monkeypatch.setattr(module, "run_in_rooms", trees.run)
    monkeypatch.setattr(differential, "find_tree_verdicts", lambda *_: gate.TreeVerdicts(trees.last, keys=("k",)))
    monkeypatch.setattr(differential, "bind_tree", lambda *_: SimpleNamespace(keys=("b",)))
    repeat = len(case.own) if case.base is F else 1
    found = desk.workbench.verify(desk.task.id, None, VerifyOptions(against="base", repeat=repeat))
    assert found.no_new_failures
    assert trees.opens is case.opens
    save_verdict(trees.home, BINDING, made(91, F))
    assert not trees.opens, "a failure after it"


def test_a_check_that_could_not_run_is_seen_as_it_was_before() -> None:
    """What it requires failed. Controls: a run of it that began after that, or came later, is not seen."""
    build = made_run("build", F, started_at=made(5, P).started_at)
    for number, before, expected in ((4, 4, True), (6, 6, False), (4, 3, False)):
        last = made(number, F)
        seen = differential.SeenRuns([build], [], {"test": made(before, F)})
        assert (seen.choose({"test": last}) == {"test": last}) is expected
    seen = differential.SeenRuns([build], [], {})
    assert seen.choose({"test": None, "build": None}) == {"test": None, "build": build}


@pytest.mark.parametrize(
    ("first", "last", "before", "is_seen"),
    [
        pytest.param(F, None, None, True, id="none before and after"),
        pytest.param(F, made(4, F), made(4, F), True, id="an older failure stays"),
        pytest.param(P, None, None, False, id="its verdict was kept, and is gone"),
        pytest.param(F, made(7, F), made(7, F), False, id="a failure beside or after it"),
        pytest.param(F, made(4, F), None, False, id="a failure that came meanwhile"),
        pytest.param(F, None, made(4, F), False, id="it ended without a verdict meanwhile"),
    ],
)
def test_a_check_after_a_failed_one_in_its_room_is_seen_without_a_verdict(
    first: Verdict, last: CheckRun | None, before: CheckRun | None, is_seen: bool
) -> None:
    """No verdict of it is kept, so the gate finds none, or an older one, and must not stay closed for that."""
    failed = made_run("first", first, exit_code=int(first is F), started_at=made(5, P).started_at)
    own = made(6, P)
    seen = differential.SeenRuns([failed, own], [], {"test": before})
    assert seen.choose({"test": last}) == {"test": last if is_seen else own}
