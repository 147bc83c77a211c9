"""What a killed start of a task left is removed by the next one, and no other task loses anything by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.workbench.tasks.killed_starts import remove_killed_start
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk

NEW = "task-45c2abc0-0000-4000-8000-000000000000"


@pytest.mark.parametrize("is_of_another", [False, True])
def test_a_branch_of_another_task_stays(upstream: Upstream, tmp_path: Path, is_of_another: bool) -> None:
    """A hub may name it. Control: that of the killed start is deleted."""
    desk = Desk(upstream, tmp_path / "home")
    with desk.workbench as bench:
        other, services = desk.task, bench._services
        git = services.repositories.open(other.repo_id)[1]
        branch = other.branch if is_of_another else "space-agent/45c2abc0-work"
        git.attempt("update-ref", f"refs/heads/{branch}", other.head_commit)
        services.home.creation_mark(NEW).touch()
        remove_killed_start(services, git, other.model_copy(update={"id": NEW, "branch": branch}))
        assert (f"refs/heads/{branch} {other.head_commit}" in desk.refs()) is is_of_another
        assert not services.home.creation_mark(NEW).exists()
