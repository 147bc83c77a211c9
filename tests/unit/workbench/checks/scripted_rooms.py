"""Clean rooms with the real caches of verdicts, in which only the guest is scripted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox.models import Check, CheckRun, Report, TestOutcome, TestResult, Verdict
from sandbox.policy.container import ContainerPolicy
from sandbox.profiles import Profile
from sandbox.store.home import Home
from sandbox.store.records import save_run
from sandbox.store.result_files import save_test_results
from sandbox.store.verdicts import Binding
from sandbox.workbench.checks import check_order, clean_rooms, differential, repetition
from sandbox.workbench.checks.gate import TreeVerdicts
from sandbox.workbench.checks.guest_setup import GuestSetup
from sandbox.workbench.tasks import worktrees
from tests.unit.desk import Desk
from tests.unit.receipt_samples import SIGNED_AT, made_run

Tests = dict[str, TestOutcome] | None
"""What a run says of its tests, by name. None: it reports none."""

Say = Callable[[str, Check, int], Tests | Verdict]
"""What the check reports on a tree, in its so many-th run there, from 0; or how it ends, without tests."""

GOOD: Tests = {"a": TestOutcome.PASSED, "b": TestOutcome.PASSED}
BAD: Tests = {"a": TestOutcome.FAILED, "b": TestOutcome.PASSED}


def judge(tests: Tests | Verdict) -> Verdict:
    if isinstance(tests, Verdict):
        return tests
    return Verdict.FAILED if TestOutcome.FAILED in (tests or {}).values() else Verdict.PASSED


def commit_change(desk: Desk) -> tuple[str, str]:
    """Give the task a commit of its own. Returns the trees of its base and of this commit."""
    desk.write("f", b"one\nthree\n")
    desk.workbench.commit(desk.task.id, "a change")
    task = desk.workbench.task(desk.task.id)
    base, own = (desk.git("rev-parse", f"{name}^{{tree}}").strip() for name in (task.base_commit, task.head_commit))
    return base, own


def select_a(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner of each check selects the test `a`."""
    order = check_order.order_checks

    def order_part(profile: Profile, ids: Sequence[str], policy: ContainerPolicy, **more: Any) -> tuple[Check, ...]:
        return tuple(
            check.model_copy(update={"arguments": more.get("arguments", ())}) for check in order(profile, ids, policy)
        )

    monkeypatch.setattr(repetition, "_select", lambda *_: ("a",))
    monkeypatch.setattr(repetition, "order_checks", order_part)


class ScriptedRooms:
    """`say`: what each run says. `ran`: the runs, by tree."""

    def __init__(self, home: Home, monkeypatch: pytest.MonkeyPatch, say: Say) -> None:
        self.home, self.say = home, say
        self.ran: dict[str, list[CheckRun]] = {}
        self._count = 0
        rooms = self
        runner, setup = clean_rooms._ChainRunner, GuestSetup("sha256:1", "runc")

        def run(self: Any, check: Check, _binding: Binding, *_: object) -> CheckRun:
            return rooms._run(self.source.tree, self.request.owner, check)

        monkeypatch.setattr(clean_rooms, "prepare_setups", lambda *_, **__: {"": setup})
        monkeypatch.setattr(clean_rooms, "hold_layers", lambda *_: nullcontext())
        monkeypatch.setattr(worktrees, "clean_room", lambda *_: nullcontext())
        monkeypatch.setattr(runner, "_build_recorder", lambda *_: None)
        monkeypatch.setattr(runner, "_choose_setup", lambda self, _: self.setup)
        monkeypatch.setattr(runner, "_run_and_take", run)
        monkeypatch.setattr(differential, "_save", lambda *_: None)  # it asks the engine, as does the next one
        monkeypatch.setattr(differential, "_find_verdicts", lambda *_: TreeVerdicts({}))

    def _run(self, tree: str, owner: str, check: Check) -> CheckRun:
        before = self.ran.setdefault(tree, [])
        said = self.say(tree, check, len(before))
        tests = None if isinstance(said, Verdict) else said
        report = None if tests is None else Report(tests=len(tests), failures=0, errors=0, skipped=0, failed=())
        run = made_run(
            check.id,
            judge(said),
            run_id=self.next_id(),
            tree=tree,
            started_at=SIGNED_AT + timedelta(minutes=self._count),
            report=report,
            arguments=check.arguments,
            shuffle_seed=check.shuffle_seed,
        )
        before.append(run)
        logs = self.home.logs(owner)
        logs.mkdir(parents=True, exist_ok=True)
        save_run(self.home, owner, run)
        if tests is not None:
            results = [TestResult(test=name, outcome=outcome) for name, outcome in tests.items()]
            save_test_results(logs, run.run_id, "junit", results, complete=True)
        return run

    def next_id(self) -> str:
        self._count += 1
        return f"run-{self._count:032x}"

    def lose_tests(self, tree: str) -> None:
        """As `gc` removes results of tests that are old."""
        for run in self.ran[tree]:
            (path,) = self.home.root.rglob(f"{run.run_id}.tests")
            path.unlink()

    def forget_verdicts(self, tree: str) -> None:
        """As in a home in which no check ran on this tree."""
        for path in self.home.verdict("x").parent.iterdir():
            if tree in path.read_text():
                path.unlink()

    def share_passes(self, monkeypatch: pytest.MonkeyPatch, trees: Sequence[str]) -> None:
        """A shared cache says of every check on these trees that it passed; it has no results of tests."""

        def find(binding: Binding) -> CheckRun | None:
            if binding.tree not in trees:
                return None
            return made_run(binding.check.id, run_id=self.next_id(), tree=binding.tree, cached=True)

        shared = SimpleNamespace(find=find, add=lambda *_: None)
        monkeypatch.setattr(clean_rooms, "open_shared_cache", lambda _: shared)
