"""Which run of a check a history shows as its verdict on a commit. Only the guest is scripted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandbox.models import Verdict
from sandbox.store.home import Home
from sandbox.workbench import VerifyOptions
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk
from tests.unit.workbench.checks.scripted_rooms import BAD, GOOD, ScriptedRooms, Tests
from tests.unit.workbench.checks.test_verify import PROFILE

SHUFFLED = PROFILE + '[check.shuffle]\nSEED = "<seed>"\n'


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Desk:
    (tmp_path / "home" / "profiles").mkdir(parents=True)
    (tmp_path / "home" / "profiles" / "own.toml").write_text(SHUFFLED)
    return Desk(upstream, tmp_path / "home")


def shown(desk: Desk) -> list[Verdict]:
    return [run.verdict for run in desk.workbench.history(desk.repo_id).commits[0].runs]


@pytest.mark.parametrize(
    ("options", "said", "expected"),
    [
        ({"shuffle": 7}, BAD, Verdict.PASSED),
        ({"cache": False}, Verdict.KILLED, Verdict.PASSED),
        ({"cache": False}, BAD, Verdict.FAILED),
        ({"cache": False}, Verdict.TIMED_OUT, Verdict.TIMED_OUT),
    ],
    ids=["shuffled", "stopped", "control: it failed", "control: it reached its deadline"],
)
def test_only_a_run_that_judges_the_tree_replaces_a_verdict(
    desk: Desk, options: dict[str, Any], said: Tests | Verdict, expected: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([GOOD, said])
    ScriptedRooms(Home(desk.home), monkeypatch, lambda *_: next(answers))
    desk.workbench.verify(desk.task.id)
    assert shown(desk) == [Verdict.PASSED], "void"
    desk.workbench.verify(desk.task.id, None, VerifyOptions(**options))
    assert shown(desk) == [expected]


def test_a_check_that_was_only_stopped_is_shown_as_that(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    ScriptedRooms(Home(desk.home), monkeypatch, lambda *_: Verdict.KILLED)
    desk.workbench.verify(desk.task.id)
    assert shown(desk) == [Verdict.KILLED]
