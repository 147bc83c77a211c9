"""Open a registered repository: its clones share one object cache until the clone is replaced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode, SandboxError
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield desk


def test_each_opening_of_a_clone_shares_its_object_cache(desk: Desk) -> None:
    repositories = desk.workbench._services.repositories
    (first, git), (second, again) = repositories.open(desk.repo_id), repositories.open(desk.repo_id)
    assert first.id == second.id == desk.repo_id
    assert git.git_dir == desk.home / "repositories" / "clones" / desk.repo_id
    assert git.cache is not None
    assert git.cache is again.cache is repositories.get_object_cache(git.git_dir)


def test_an_unknown_repository_is_not_found(desk: Desk) -> None:
    with pytest.raises(SandboxError) as found:
        desk.workbench._services.repositories.open("none")
    assert found.value.code is ErrorCode.NOT_FOUND


def test_a_task_is_a_commit_with_a_base_and_a_repository_the_head_of_its_default_branch(desk: Desk) -> None:
    repositories = desk.workbench._services.repositories
    base = desk.task.base_commit
    desk.write("new.txt", b"")
    made = desk.workbench.commit(desk.task.id, "Add a file")
    of_task, of_repository = (repositories.find_owner_commit(owner) for owner in (desk.task.id, desk.repo_id))
    assert (of_task.owner_id, of_task.repository.id, of_task.base_commit) == (desk.task.id, desk.repo_id, base)
    assert of_task.commit == made.commit != base
    assert (of_repository.owner_id, of_repository.task) == (desk.repo_id, None)
    assert of_repository.commit == of_repository.base_commit == base


def test_only_a_reader_finds_the_commit_of_a_closed_task(desk: Desk) -> None:
    repositories = desk.workbench._services.repositories
    task = desk.task
    desk.workbench.close_task(task.id)
    assert repositories.find_owner_commit(task.id, allow_closed=True).commit == task.head_commit
    with pytest.raises(SandboxError) as found:
        repositories.find_owner_commit(task.id)
    assert found.value.code is ErrorCode.CONFLICT
