"""Cached verdicts whose results of tests are gone, or never were here: what compares tests runs these checks again."""

from __future__ import annotations

import pytest

from sandbox.models import Check
from sandbox.store.home import Home
from sandbox.workbench import ExploreOptions, VerifyOptions
from tests.unit.desk import Desk
from tests.unit.workbench.checks.scripted_rooms import GOOD, ScriptedRooms, Tests, commit_change


def all_pass(_tree: str, _check: Check, _number: int) -> Tests:
    return GOOD


@pytest.mark.parametrize(
    ("gone", "runs"),
    [("", (1, 1)), ("removed", (2, 2)), ("shared base", (1, 1)), ("shared task", (1, 1)), ("shared, both", (1, 1))],
)
def test_a_comparison_of_passes_has_no_missing_tests(
    desk: Desk, gone: str, runs: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: what has its results here is answered from the cache."""
    base, own = commit_change(desk)
    rooms = ScriptedRooms(Home(desk.home), monkeypatch, all_pass)
    shared = {"shared base": [base], "shared task": [own], "shared, both": [base, own]}.get(gone)
    if shared is not None:
        rooms.share_passes(monkeypatch, shared)
        assert desk.workbench.verify(desk.task.id).runs[0].cached is (own in shared), "void"
    else:
        desk.workbench.verify(desk.task.id, None, VerifyOptions(against="base"))
    if gone == "removed":
        rooms.lose_tests(base)
        rooms.lose_tests(own)
        assert desk.workbench.verify(desk.task.id).runs[0].cached, "void: a plain verify needs no results of tests"

    found = desk.workbench.verify(desk.task.id, None, VerifyOptions(against="base"))

    assert found.comparison is not None
    (check,) = found.comparison.checks
    assert (check.by, check.counts, check.reasons) == ("tests", {}, ())
    assert found.verified
    assert found.no_new_failures
    assert (len(rooms.ran[base]), len(rooms.ran[own])) == runs


PATCH = b"--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n"


@pytest.mark.parametrize("gone", ["", "removed", "shared"])
def test_a_way_that_passed_wins_also_if_its_results_of_tests_are_gone(
    desk: Desk, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: what has its results here is answered from the cache."""
    rooms, options = ScriptedRooms(Home(desk.home), monkeypatch, all_pass), ExploreOptions(restore=False)
    (before,) = desk.workbench.explore(desk.task.id, {"way": PATCH}, options=options).ways
    assert before.tree is not None
    if gone:
        rooms.lose_tests(before.tree)
    if gone == "shared":
        rooms.forget_verdicts(before.tree)
        rooms.share_passes(monkeypatch, [before.tree])

    found = desk.workbench.explore(desk.task.id, {"way": PATCH}, options=options)

    (way,) = found.ways
    assert (way.verified, way.missing, found.winner) == (True, 0, "way")
    assert len(rooms.ran[before.tree]) == (2 if gone else 1)
