"""What a person is shown of a task."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sandbox.cli.task_rows import show_task
from sandbox.models import Task, TaskStatus

TASK = Task(
    id="task-11111111-1111-4111-8111-111111111111", repo_id="r", prompt="Add", base_branch="main",
    branch="space-agent/11111111-add", base_commit="0" * 40, head_commit="0" * 40, workspace_kind="worktree",
    worktree_path=None, status=TaskStatus.WORKING, created_at=datetime.now(UTC), session="s",
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, "not on this host"),
        ({"workspace_kind": "tree"}, "none until its first check"),
        ({"status": TaskStatus.CLOSED}, "removed"),
        ({"worktree_path": "/w"}, "/w"),
    ],
)
def test_where_the_files_of_a_task_are(
    capsys: pytest.CaptureFixture[str], changes: dict[str, object], shown: str
) -> None:
    """A task of a cluster has them on its worker."""
    show_task(TASK.model_copy(update=changes))
    assert f"  worktree  {shown}\n" in capsys.readouterr().out
