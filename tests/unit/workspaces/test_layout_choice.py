"""An overlay is tried once for each file system, and again where it failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.files.idmap import IdMapping
from sandbox.workspaces import layout_choice
from sandbox.workspaces.layout_choice import choose_layout
from tests.unit.conftest import refused


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What each trial finds, the next one last."""
    found: list[str] = []
    monkeypatch.setattr(layout_choice, "_working", set())
    monkeypatch.setattr(layout_choice, "find_overlay_obstacle", lambda *_: found.pop())
    return found


def test_what_worked_is_not_tried_again(answers: list[str], tmp_path: Path) -> None:
    answers.append("")
    for uid in (66_000, 66_001):  # each worktree has a user of its own
        assert choose_layout("overlay", tmp_path, IdMapping((64_000, 64_000), (uid, uid))).kind == "overlay"
    assert answers == []


def test_what_failed_is_tried_again(answers: list[str], tmp_path: Path) -> None:
    answers += ["", "no mounts"]
    with refused(ErrorCode.POLICY_VIOLATION):
        choose_layout("overlay", tmp_path, None)
    assert choose_layout("auto", tmp_path, None).kind == "overlay"


def test_owners_that_are_replaced_are_another_trial(answers: list[str], tmp_path: Path) -> None:
    answers += ["no owners", ""]
    assert choose_layout("auto", tmp_path, None).kind == "overlay"
    assert choose_layout("auto", tmp_path, IdMapping((64_000, 64_000), (66_000, 66_000))).kind == "plain"
