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
