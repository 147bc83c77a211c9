"""A call is noted while it is made, so that one that was interrupted is told from a new one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandbox.approvals import AgentCall
from sandbox.cluster.noted_call import NotedCall

CALL = AgentCall("space_repo_push", {"base_branch": "main"}, "policy", "task-1", "r", "a" * 40)
OTHER = AgentCall("space_repo_push", {"base_branch": "release"}, "policy", "task-1", "r", "a" * 40)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "repositories" / "operations" / "task-1").mkdir(parents=True)
    return tmp_path


def test_a_call_that_was_interrupted_keeps_its_time_and_another_has_its_own(home: Path) -> None:
    before = datetime.now(UTC)
    assert NotedCall(home, "task-1").note(CALL) is None
    assert NotedCall(home, "task-1").note(OTHER) is None
    after = datetime.now(UTC)
    noted = NotedCall(home, "task-1").note(CALL)
    assert noted is not None
    assert before <= noted <= after
    assert NotedCall(home, "task-1").note(CALL) == noted


def test_an_answered_call_is_a_new_one_when_it_is_made_again(home: Path) -> None:
    noted = NotedCall(home, "task-1")
    noted.note(CALL)
    NotedCall(home, "task-1").forget()  # of an operation that made no call
    noted.forget()
    assert NotedCall(home, "task-1").note(CALL) is None


@pytest.mark.parametrize("at", ["", ',"at":"x"', ',"at":"2026-01-01"'])
def test_a_note_without_its_time_gives_no_used_approval_again(home: Path, at: str) -> None:
    NotedCall(home, "task-1").note(CALL)
    (path,) = home.glob("repositories/operations/task-1/permitted-*.json")
    path.write_text(f'{{"schema_version":1{at}}}')
    assert NotedCall(home, "task-1").note(CALL) is None
    assert NotedCall(home, "task-1").note(CALL) is not None, "it is noted anew"
