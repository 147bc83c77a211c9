"""A check that runs from scratch and with a compiler cache: its last run decides, in `verify` and in the gate.

The verdict cache and what asks it are real; guests and rooms are left out.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandbox.checks.compiler_cache import CompilerCacheUse
from sandbox.checks.execute import CheckDirectories
from sandbox.models import Check, CheckRun, Verdict, Verification
from sandbox.store.bindings import find_binding
from sandbox.store.home import Home
from sandbox.store.runs import list_runs
from sandbox.store.verdicts import Binding, find_last_run, save_verdict
from sandbox.workbench import VerifyOptions
from sandbox.workbench.checks import clean_rooms, compiler_caching, gate, tree_bindings
from sandbox.workbench.checks import run as running
from sandbox.workbench.checks.guest_setup import GuestSetup
from sandbox.workbench.checks.verdict_keys import build_bindings, possible_setups
from sandbox.workbench.checks.verdict_ways import find_answer, find_best_way, forget_other_ways, has_failed
from sandbox.workbench.tasks import worktrees
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk
from tests.unit.receipt_samples import TREE, made_run
from tests.unit.workbench.checks.test_verify import PROFILE

P, F, K, S = Verdict.PASSED, Verdict.FAILED, Verdict.TIMED_OUT, Verdict.KILLED
BEGAN = datetime(2026, 2, 3, tzinfo=UTC)
CHECK = Check(id="test", label="test", argv=("true",))
SETUP = GuestSetup("sha256:1", "runc")


@dataclass
class Ways:
    """`verify` and the gate on one tree. Each run of the checks takes its verdict from `script`, an hour later."""

    desk: Desk
    script: list[Verdict] = field(default_factory=list)
    ran: list[CheckRun] = field(default_factory=list)

    def verify(self, *script: Verdict, **options: Any) -> tuple[str, bool]:
        """The verdict, and whether it was cached. Every run of the script must be asked for."""
        self.script.extend(script)
        (run,) = self.desk.workbench.verify(self.desk.task.id, None, VerifyOptions(**options)).runs
        assert not self.script, "fewer runs"
        return run.verdict.value, run.cached

    def run(self, runner: Any, check: Any, binding: Any, *_: object) -> CheckRun:
        verdict, number = self.script.pop(0), len(self.ran)
        ended = {P: 0, F: 1}.get(verdict)
        run = made_run(
            check.id, verdict, run_id=f"run-{number:032x}", tree=runner.source.tree, exit_code=ended,
            started_at=BEGAN + timedelta(hours=number), compiler_cache="read" if binding.compiler_cache else None,
        )  # fmt: skip
        self.ran.append(run)
        runner.services.home.logs(runner.request.owner).mkdir(parents=True, exist_ok=True)
        return run

    @property
    def home(self) -> Home:
        return self.desk.workbench._services.home

    @property
    def verdicts(self) -> gate.TreeVerdicts:
        return gate.TreeGate(self.desk.workbench._services, self.desk.task).verdicts

    @property
    def verified(self) -> bool | None:
        return self.verdicts.verified

    @property
    def last(self) -> CheckRun | None:
        """The run that counts for the gate."""
        return self.verdicts.runs["test"]


@contextmanager
def open_ways(upstream: Upstream, home: Path, monkeypatch: pytest.MonkeyPatch, settings: str = "") -> Iterator[Ways]:
    """A task of a home with these settings."""
    (home / "profiles").mkdir(parents=True)
    (home / "profiles" / "own.toml").write_text(PROFILE.replace("[[detect", "compiler_cache = true\n[[detect"))
    (home / "config.toml").write_text(settings)
    made = Ways(Desk(upstream, home))
    use = CompilerCacheUse(Path("/"), made.desk.repo_id)
    runner = clean_rooms._ChainRunner
    with monkeypatch.context() as patched:
        patched.setattr(clean_rooms, "prepare_setups", lambda *_a, **_k: {"": SETUP})
        patched.setattr(tree_bindings, "_resolve_setups", lambda *_: {"": SETUP})
        patched.setattr(clean_rooms, "hold_layers", lambda *_: nullcontext())
        patched.setattr(runner, "_build_recorder", lambda *_: None)
        patched.setattr(compiler_caching, "choose_use", lambda *_: use)
        patched.setattr(worktrees, "clean_room", lambda *_: nullcontext())
        patched.setattr(runner, "_run_and_take", lambda *args: made.run(*args))
        yield made
        made.desk.workbench.__exit__(None, None, None)


@pytest.fixture
def ways(upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ways]:
    with open_ways(upstream, tmp_path / "home", monkeypatch) as made:
        yield made


def test_s219_a_failure_from_scratch_ends_an_older_pass_with_the_cache(ways: Ways) -> None:
    """And only a pass from scratch replaces it: no request reads the cache before. Control: the older pass counted."""
    assert (ways.verify(P), ways.verified) == (("passed", False), True)
    assert ways.verify() == ("passed", True)
    assert (ways.verify(F, from_scratch=True), ways.verified) == (("failed", False), False)
    assert (ways.verify(F), ways.verified) == (("failed", False), False)
    assert (ways.verify(), ways.verified) == (("failed", True), False)
    assert (ways.verify(P, cache=False), ways.verified) == (("passed", False), True)
    assert ways.verify() == ("passed", True)
    assert [run.compiler_cache for run in ways.ran] == ["read", None, None, None]


def test_s219_a_first_failure_from_scratch_is_not_answered_with_that_of_the_cache(ways: Ways) -> None:
    """The gate counts the run from scratch, so `verify` runs again, from scratch. Control: the cached one before."""
    assert [ways.verify(F), ways.verify(F), ways.verify()] == [("failed", False), ("failed", False), ("failed", True)]
    ways.verify(F, from_scratch=True)
    assert ways.verify(F) == ("failed", False)
    assert ways.verify() == ("failed", True)
    assert [run.compiler_cache for run in ways.ran] == ["read", "read", None, None]


def test_s219_a_failure_with_the_cache_ends_an_older_pass_from_scratch(ways: Ways) -> None:
    """Also for a request from scratch, which would say `verified` of a tree that the gate refuses."""
    assert (ways.verify(P, from_scratch=True), ways.verified) == (("passed", False), True)
    assert ways.verify() == ("passed", True), "control"
    assert (ways.verify(F, cache=False), ways.verified) == (("failed", False), False)
    assert (ways.verify(F), ways.verified) == (("failed", False), False)
    assert (ways.verify(), ways.verified) == (("failed", True), False)
    assert (ways.verify(P, from_scratch=True), ways.verified) == (("passed", False), True)
    assert ways.verify() == ("passed", True)


@pytest.mark.parametrize("scratch_first", [True, False])
def test_s219_a_run_without_a_verdict_ends_older_passes_of_all_ways(ways: Ways, scratch_first: bool) -> None:
    assert (ways.verify(P, from_scratch=scratch_first), ways.verified) == (("passed", False), True)
    ways.verify(K, from_scratch=not scratch_first, cache=False)
    assert ways.verified is False
    assert (ways.verify(P), ways.verified) == (("passed", False), True)


@pytest.mark.parametrize("without", [[K], [K, K], [K, S, K]])
@pytest.mark.parametrize("failures", [[F], [F, F]])
def test_s231_a_run_without_a_verdict_erases_no_failure_from_scratch(
    ways: Ways, failures: list[Verdict], without: list[Verdict]
) -> None:
    """Code that passes only with the cache need only time out once. Control: without a failure, the cache is read."""
    ways.verify(K, from_scratch=True)
    assert ways.verify(P) == ("passed", False)
    assert (ways.ran[-1].compiler_cache, ways.verified) == ("read", True), "control"
    for verdict in (*failures, *without):
        ways.verify(verdict, from_scratch=True, cache=False)
        assert ways.verified is False
    for _ in range(2):
        assert ways.verify(F) == ("failed", False), "it runs again"
        assert (ways.ran[-1].compiler_cache, ways.verified) == (None, False), "from scratch"
    assert ways.verify() == ("failed", True)
    assert (ways.verify(P, cache=False), ways.verified) == (("passed", False), True)


def test_s231_a_stopped_run_from_scratch_erases_no_failure_with_the_cache(ways: Ways) -> None:
    """An agent can stop its own run. Control: the failure closes the gate before it."""
    ways.verify(F)
    ways.verify(F)
    failed = ways.last
    assert failed is not None
    ways.verify(S, from_scratch=True)
    assert (ways.last, ways.verified) == (failed, False)
    assert (ways.verify(P, from_scratch=True), ways.verified) == (("passed", False), True)


def _run_at(ways: Ways, monkeypatch: pytest.MonkeyPatch, days: int, *verdict: Verdict, **options: Any) -> Verification:
    """Verify, so many days later than in the order of the runs."""
    made_now = made_run

    def make(*given: Any, **more: Any) -> CheckRun:
        return made_now(*given, **{**more, "started_at": more["started_at"] + timedelta(days=days)})

    with monkeypatch.context() as patched:
        patched.setattr(sys.modules[__name__], "made_run", make)
        ways.script.extend(verdict)
        return ways.desk.workbench.verify(ways.desk.task.id, None, VerifyOptions(**options))


@pytest.mark.parametrize("scratch_first", [True, False])
def test_s230_a_pass_that_the_gate_does_not_take_verifies_nothing(
    ways: Ways, scratch_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began before a failure of the same check had ended. Control: a later one."""
    _run_at(ways, monkeypatch, 1, F, from_scratch=scratch_first)
    found = _run_at(ways, monkeypatch, 0, P, from_scratch=True)
    assert (found.verified, ways.verified) == (False, False)
    assert find_binding(ways.home, ways.ran[-1]) is None, "no receipt"
    found = _run_at(ways, monkeypatch, 2, P, from_scratch=True)
    assert (found.verified, ways.verified) == (True, True), "control"


@pytest.mark.parametrize("scratch_first", [True, False])
def test_a_failure_that_is_dated_after_now_is_replaced_by_a_pass(
    ways: Ways, scratch_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock was ahead, and was set back: no pass could begin after the failure, for as long."""
    _run_at(ways, monkeypatch, 36_500, F, from_scratch=scratch_first)
    assert ways.verified is False
    found = _run_at(ways, monkeypatch, 0, P, from_scratch=True)
    assert (found.verified, ways.verified) == (True, True)


def test_a_run_without_a_verdict_after_a_failure_is_the_last_run(ways: Ways) -> None:
    """A comparison that knew the failure, and is older, is over. Control: the failure was the last run."""
    for verdict in (F, K, S):
        ways.verify(verdict, from_scratch=True, cache=False)
        assert ways.last == ways.ran[-1].model_copy(update={"cached": True})


class Interrupted:
    """Runs a check up to its verdict, then gets a signal: Ctrl-C, or none."""

    guest = SimpleNamespace(services=())

    def __init__(self, verdict: Verdict, number: int, end: Callable[[], None]) -> None:
        self.verdict, self.number, self.end = verdict, number, end

    def run(self, run_id: str, check: Check, place: CheckDirectories, *_: object) -> CheckRun:
        self.end()
        began = BEGAN + timedelta(hours=self.number)
        code = {P: 0, F: 1}.get(self.verdict)
        return made_run(check.id, self.verdict, run_id=run_id, tree=place.tree, started_at=began, exit_code=code)


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def interrupted(ways: Ways, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """`verify` from scratch, with a real record of its run. `end`: called as the check ends."""
    monkeypatch.setattr(running, "watch_disk", lambda *_: SimpleNamespace(check_disk_limit=lambda: None))
    monkeypatch.setattr(running, "demand_memory", lambda *_: None)

    def verify(verdict: Verdict, end: Callable[[], None]) -> None:
        recorder = Interrupted(verdict, 1000 + len(list_runs(ways.home, ways.desk.task.id, 9)), end)

        def run(runner: Any, check: Check, _binding: Binding, *given: Any) -> CheckRun:
            place = CheckDirectories(
                tmp_path, tmp_path, cast("Any", None), runner.source.tree, clean_room=True, task_id=None
            )
            which = (running.new_run_id(runner.services.presence), check, place)
            owner, before = runner.request.owner, given[3]
            return running.run_one(runner.services, cast("Any", recorder), which, given[1], owner=owner, before=before)

        with monkeypatch.context() as patched:
            patched.setattr(clean_rooms._ChainRunner, "_run_and_take", run)
            ways.desk.workbench.verify(ways.desk.task.id, None, VerifyOptions(cache=False, from_scratch=True))

    return verify


@pytest.mark.parametrize("verdict", [F, K, S])
def test_a_check_that_fails_as_ctrl_c_comes_closes_the_gate(
    ways: Ways, interrupted: Callable[..., None], verdict: Verdict
) -> None:
    """Its record says so, and the older pass does not count. Control: one that passes leaves the gate as it was."""
    assert (ways.verify(P, from_scratch=True), ways.verified) == (("passed", False), True)
    with pytest.raises(KeyboardInterrupt):
        interrupted(P, press_ctrl_c)
    assert ways.verified is True, "control"
    with pytest.raises(KeyboardInterrupt):
        interrupted(verdict, press_ctrl_c)
    assert [run.verdict for run in list_runs(ways.home, ways.desk.task.id, 9)] == [verdict, P]
    assert ways.verified is False


def test_a_failure_that_has_a_record_has_its_verdict_wherever_the_process_is_killed(
    ways: Ways, interrupted: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What closes the gate is there before the first byte of the record. An exception stands in for the kill."""
    ways.verify(P, from_scratch=True)

    def kill(*_: object) -> None:
        raise SystemExit(9)

    monkeypatch.setattr(running, "save_run", kill)
    with pytest.raises(SystemExit):
        interrupted(F, lambda: None)
    assert not list_runs(ways.home, ways.desk.task.id, 9)
    assert ways.verified is False


def made(number: int, verdict: Verdict, began_s: float, binding: Binding) -> CheckRun:
    began = BEGAN + timedelta(seconds=began_s)  # takes 1.5 s
    read = "read" if binding.compiler_cache else None
    return made_run("test", verdict, run_id=f"run-{number:032x}", started_at=began, compiler_cache=read)


@pytest.mark.parametrize(
    ("first", "second", "began_s", "counts"),
    [
        pytest.param(P, F, 9, F, id="a later failure"),
        pytest.param(F, P, 9, None, id="a later pass"),
        pytest.param(P, F, 1, F, id="a failure beside it"),
        pytest.param(F, P, 1, F, id="a pass beside it"),
        pytest.param(P, P, 9, P, id="two passes"),
    ],
)
@pytest.mark.parametrize("scratch_first", [True, False])
def test_the_last_run_of_all_ways_counts(
    ways: Ways, first: Verdict, second: Verdict, began_s: float, counts: Verdict | None, scratch_first: bool
) -> None:
    """Of runs that overlap, the one that did not pass: the pass may have been the luckier one. A later pass counts if
    it is from scratch.
    """
    counts = counts or (F if scratch_first else P)
    services = ways.desk.workbench._services
    setups = possible_setups(SETUP, ways.desk.repo_id)
    bound = [build_bindings(services.policies, setup, TREE, [CHECK]) for setup in setups]
    order = bound if scratch_first else bound[::-1]
    for number, (verdict, began, way) in enumerate([(first, 0, order[0]), (second, began_s, order[1])]):
        save_verdict(services.home, way["test"], made(number, verdict, began, way["test"]))
    run = find_best_way(services.home, bound).runs["test"]
    assert run is not None
    assert run.verdict is counts
    answers = [find_answer(services.home, bound, number, "test") for number in (0, 1)]
    assert {answer.verdict for answer in answers if answer} == ({P} if counts is P else set()), "a first failure"
    assert has_failed(services.home, bound, "test") == (F in {first, second})


@pytest.mark.parametrize("verdict", [P, F])
@pytest.mark.parametrize("scratch_first", [True, False])
def test_s231_what_a_run_without_a_verdict_leaves_of_the_other_way(
    ways: Ways, verdict: Verdict, scratch_first: bool
) -> None:
    """A failure, which another request stored meanwhile. Control: a pass is deleted."""
    services = ways.desk.workbench._services
    bound = [build_bindings(services.policies, s, TREE, [CHECK]) for s in possible_setups(SETUP, ways.desk.repo_id)]
    other, own = (way["test"] for way in (bound if scratch_first else bound[::-1]))
    save_verdict(services.home, other, made(0, verdict, 0, other))
    save_verdict(services.home, own, made(1, K, 1, own))
    forget_other_ways(services.home, bound, own)
    assert (find_last_run(services.home, other) is not None) == (verdict is F)
    assert find_last_run(services.home, own) is None


def test_checks_of_a_chain_that_did_not_run_again_keep_their_verdict(ways: Ways) -> None:
    """A request that was stopped after the first check of the chain says nothing against the second."""
    services = ways.desk.workbench._services
    chain = [CHECK.model_copy(update={"id": "build"}), CHECK.model_copy(update={"requires": ("build",)})]
    setups = possible_setups(SETUP, ways.desk.repo_id)
    bound = [build_bindings(services.policies, setup, TREE, chain) for setup in setups]
    for name in ("build", "test"):
        run = made(0, P, 0, bound[1][name]).model_copy(update={"check_id": name})
        save_verdict(services.home, bound[1][name], run)
    for verdict, passed in ((P, True), (F, False)):
        run = made(1, verdict, 9, bound[0]["build"]).model_copy(update={"check_id": "build"})
        save_verdict(services.home, bound[0]["build"], run)
        runs = find_best_way(services.home, bound).runs.values()
        assert all(run is not None and run.verdict is P for run in runs) is passed


@pytest.mark.parametrize(
    ("rounds", "kept"),
    [
        pytest.param([P, F, P, F, P], None, id="by turns"),
        pytest.param([F, F, P], None, id="two failures, then a pass"),
        pytest.param([P, F, F], "failed", id="control: two failures at last"),
        pytest.param([P, P, P], "passed", id="control: passes"),
    ],
)
def test_rounds_that_fail_by_turns_confirm_no_failure_and_open_no_gate(
    ways: Ways, rounds: list[Verdict], kept: str | None
) -> None:
    ways.verify(*rounds, repeat=len(rounds))
    assert ways.verified is (kept == "passed")
    assert ways.verify(*([] if kept else [P])) == (kept or "passed", kept is not None)
    assert ways.verified is (kept != "failed")
