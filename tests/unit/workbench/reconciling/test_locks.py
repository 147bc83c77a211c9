"""Lock files are removed with what they were for."""

from __future__ import annotations

from pathlib import Path

from sandbox.models import WorkspaceRequest
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk


def test_gc_removes_locks_of_starts_of_forgotten_tasks_and_of_released_workspaces(
    upstream: Upstream, tmp_path: Path
) -> None:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench as workbench:
        home, task_id = workbench._services.home, desk.task.id
        released = workbench.acquire_workspace("ephemeral", WorkspaceRequest(hint="released"))
        workbench.release_workspace(released.id)
        acquired = workbench.acquire_workspace("ephemeral", WorkspaceRequest(hint="acquired"))
        other = workbench.create_task(desk.repo_id, "goes on")
        for name in (task_id, other.id):
            with home.locked(f"start-{name}"):
                pass
        workbench.close_task(task_id, delete_worktree=True)
        home.task(task_id).unlink()
        with home.locked(f"start-{task_id}"):
            workbench.collect()
            assert home.lock_path(f"start-{task_id}").exists()
        workbench.collect()
        names = (released.id, f"start-{task_id}", task_id, acquired.id, f"start-{other.id}")
        assert [home.lock_path(name).exists() for name in names] == [False, False, False, True, True]
