"""Tasks of a cluster know whether the remote had their base, as tasks of one home do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.models import SyncState
from sandbox.store.records import find_task
from sandbox.workbench.delivery import hub, imported_tasks
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk

TASK_ID = "task-45c2abc0-0000-4000-8000-000000000000"


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield desk


def publish_task(desk: Desk) -> str:
    """The branch of a task on the remote."""
    (desk.root / "mine").write_bytes(b"mine\n")
    desk.workbench.commit(desk.task.id, "mine")
    return desk.workbench.push(desk.task.id).branch


@pytest.mark.parametrize("starts_at_task", [True, False])
def test_a_task_of_a_cluster_may_start_at_a_task_and_is_synced_later(desk: Desk, *, starts_at_task: bool) -> None:
    branch = publish_task(desk)
    new = hub.NewTask(TASK_ID, str(desk.upstream.root), base_branch=branch if starts_at_task else None)
    task = hub.create_named_task(desk.workbench._services, new)
    assert task.base_on_remote is not starts_at_task
    (Path(str(task.worktree_path)) / "more").write_bytes(b"more\n")
    desk.workbench.commit(task.id, "more")
    desk.upstream.write("later", b"x\n")
    desk.upstream.commit("later")
    desk.upstream.git("branch", "-q", "-D", branch)
    assert desk.workbench.sync_task(task.id, "main", fetch=True).state is SyncState.SYNCED


@pytest.mark.parametrize("flag", [True, False])
def test_an_imported_task_has_the_record_of_its_base(desk: Desk, *, flag: bool) -> None:
    services = desk.workbench._services
    git = services.repositories.open(desk.repo_id)[1]
    recorded = desk.task.model_copy(update={"base_on_remote": flag})
    assert imported_tasks._draft(services, recorded).base_on_remote is flag
    imported_tasks._move_task(services, git, recorded)
    assert find_task(services.home, desk.task.id).base_on_remote is flag
