"""A run that the verdict cache does not keep is no evidence elsewhere, either (THREATS S230)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.models import Check, CheckRun, Verdict
from sandbox.store.home import Home
from sandbox.workbench import VerifyOptions
from sandbox.workbench.checks import artifact_provenance, signed_receipts
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk
from tests.unit.workbench.checks.scripted_rooms import BAD, GOOD, ScriptedRooms, Tests, commit_change
from tests.unit.workbench.checks.test_verify import PROFILE

P, F = Verdict.PASSED, Verdict.FAILED
CHAIN = PROFILE[: PROFILE.index("[[check]]")] + "".join(
    f'[[check]]\nid = "{name}"\nlabel = "{name}"\nargv = ["true"]\n{more}'
    for name, more in (("build", ""), ("a", 'requires = ["build"]\n'), ("b", 'requires = ["build"]\n'))
)


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    (tmp_path / "home" / "profiles").mkdir(parents=True)
    (tmp_path / "home" / "profiles" / "own.toml").write_text(CHAIN)
    found = Desk(upstream, tmp_path / "home")
    yield found
    found.workbench.__exit__(None, None, None)


@pytest.mark.parametrize("is_red", [False, True], ids=["passes by itself", "control: fails by itself"])
def test_s230_a_failure_after_another_one_in_its_room_confirms_none(
    desk: Desk, is_red: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the base `a` fails, and `b` for what `a` leaves. The task mends `a` and breaks `b` for good."""
    base, own = commit_change(desk)
    left = dict[str, bool]()

    def say(tree: str, check: Check, _: int) -> Verdict:
        if check.id == "build":
            left[tree] = False
        if check.id == "a":
            left[tree] = tree == base
        fails = {"build": False, "a": tree == base, "b": left[tree] or tree == own or is_red}[check.id]
        return F if fails else P

    ScriptedRooms(Home(desk.home), monkeypatch, say)
    for _ in range(3):
        found = desk.workbench.verify(desk.task.id, None, VerifyOptions(against="base"))
        assert found.no_new_failures is is_red


@pytest.mark.parametrize("alone", [[F, P], [F, F]], ids=["by chance", "control: twice"])
def test_s230_the_compared_run_is_no_evidence_after_a_failure_in_its_room(
    desk: Desk, alone: list[Verdict], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the base `b` fails for what `a` leaves, and by itself in so many rooms without `a`."""
    base, own = commit_change(desk)
    left, said = dict[str, bool](), list(alone)

    def say(tree: str, check: Check, _: int) -> Verdict:
        if check.id != "b":
            left[tree] = check.id == "a" and tree == base
            return F if left[tree] else P
        return F if tree == own or left[tree] else said.pop(0)

    ScriptedRooms(Home(desk.home), monkeypatch, say)
    found = desk.workbench.verify(desk.task.id, None, VerifyOptions(against="base"))
    assert found.no_new_failures is (alone == [F, F])


def runs_after(desk: Desk, monkeypatch: pytest.MonkeyPatch, first: Verdict) -> list[CheckRun]:
    """Those of all checks, of which `a` ends so and the others pass."""
    commit_change(desk)
    ScriptedRooms(Home(desk.home), monkeypatch, lambda _tree, check, _number: first if check.id == "a" else P)
    return list(desk.workbench.verify(desk.task.id, None, VerifyOptions(keep_going=True)).runs)


@pytest.mark.parametrize("first", [P, F], ids=["control", "a failure before it"])
def test_s230_what_passed_after_a_failure_in_its_room_has_no_receipt_and_no_provenance(
    desk: Desk, first: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = desk.workbench._services
    runs = {run.check_id: run for run in runs_after(desk, monkeypatch, first)}
    failed = signed_receipts.export_run(services, runs["a"].run_id, None).receipt
    assert failed.passed is (first is P)
    if first is P:
        assert signed_receipts.export_run(services, runs["b"].run_id, None).receipt.passed
        return
    for export in (signed_receipts.export_run, artifact_provenance.export_provenance):
        with refused(ErrorCode.NOT_FOUND) as caught:
            export(services, runs["b"].run_id, None)
        assert "after a check that failed in its room" in caught.value.details


@pytest.mark.parametrize("first", [P, F], ids=["control", "a failure before it"])
def test_s230_a_receipt_of_several_checks_leaves_out_what_came_after_a_failure(
    desk: Desk, first: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = runs_after(desk, monkeypatch, first)
    proven = signed_receipts._list_proven(desk.workbench._services, runs)
    assert [run.check_id for run in proven] == ["build", "a", *(["b"] if first is P else [])]


@pytest.mark.parametrize("rounds", ["FPP", "PFP"])
def test_s230_a_history_shows_the_failure_that_later_rounds_do_not_replace(
    desk: Desk, rounds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: an evident pass after it does."""
    said: list[Tests] = [{"F": BAD, "P": GOOD}[letter] for letter in rounds] + [GOOD]
    commit_change(desk)

    def say(_tree: str, check: Check, number: int) -> Tests:
        return said[number // 3] if check.id == "a" else GOOD

    ScriptedRooms(Home(desk.home), monkeypatch, say)

    def shown() -> Verdict:
        head = desk.workbench.task(desk.task.id).head_commit
        (commit,) = desk.workbench.history(desk.repo_id, head, 1).commits
        return next(run.verdict for run in commit.runs if run.check_id == "a")

    found = desk.workbench.verify(desk.task.id, None, VerifyOptions(repeat=len(rounds), keep_going=True))
    assert not found.verified
    assert shown() is F
    desk.workbench.verify(desk.task.id, None, VerifyOptions(cache=False))
    assert shown() is P
