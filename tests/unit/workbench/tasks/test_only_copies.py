"""What counts as kept elsewhere: what the last fetch found at the remote, and what a pull request has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.store.records import save_task
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield desk


def push(desk: Desk) -> str:
    desk.write("f", b"work\n")
    commit = desk.workbench.commit(desk.task.id, "work").commit
    desk.workbench.push(desk.task.id)
    return commit


def delete_on_remote(desk: Desk) -> None:
    desk.upstream.git("branch", "-D", desk.task.branch)
    desk.workbench.clone(str(desk.upstream.root))


def require_kept(desk: Desk, commit: str) -> None:
    """The branch of the task stays when that is closed, and holds up the removal of its repository."""
    desk.workbench.close_task(desk.task.id, delete_worktree=True)
    assert f"refs/heads/{desk.task.branch} {commit}" in desk.refs()
    with refused(ErrorCode.DIRTY_WORKSPACE) as caught:
        desk.workbench.remove_repository(desk.repo_id)
    assert caught.value.details == f"branch {desk.task.branch}: commits that the remote no longer has"


def test_a_pushed_commit_whose_branch_the_remote_deleted_stays_here(desk: Desk) -> None:
    commit = push(desk)
    delete_on_remote(desk)
    require_kept(desk, commit)


@pytest.mark.parametrize("fetched", [False, True])
def test_a_pushed_commit_needs_no_copy_here(desk: Desk, fetched: bool) -> None:
    commit = push(desk)
    if fetched:
        desk.workbench.clone(str(desk.upstream.root))
    desk.workbench.close_task(desk.task.id, delete_worktree=True)
    assert [ref.split()[0] for ref in desk.refs() if commit in ref] == [f"refs/remotes/origin/{desk.task.branch}"]
    desk.workbench.remove_repository(desk.repo_id)


def save_request(desk: Desk, head: str | None) -> None:
    task = desk.workbench.task(desk.task.id)
    request = {"pr_url": "https://forge.example/x/y/pull/1", "pr_head": head}
    save_task(desk.workbench._services.home, task.model_copy(update=request))


def test_a_commit_of_a_pull_request_needs_no_copy_when_its_branch_is_deleted(desk: Desk) -> None:
    """As after a squash merge: the forge keeps the commits of the request, also those below its head."""
    commit = push(desk)
    desk.write("f", b"work of a reviewer\n")
    head = desk.workbench.commit(desk.task.id, "more").commit
    desk.git("update-ref", f"refs/heads/{desk.task.branch}", commit, head)
    save_request(desk, head)
    delete_on_remote(desk)
    desk.workbench.close_task(desk.task.id, delete_worktree=True, discard=True)
    assert not [ref for ref in desk.refs() if commit in ref]
    desk.workbench.remove_repository(desk.repo_id)


@pytest.mark.parametrize("head", ["the first", "not here", None], ids=["merged before", "of another person", "no head"])
def test_s245_a_commit_that_the_forge_did_not_name_is_kept(desk: Desk, head: str | None) -> None:
    """A request that is merged or closed does not follow its branch. `None`: a record of an earlier version."""
    first = push(desk)
    desk.write("f", b"more work\n")
    second = desk.workbench.commit(desk.task.id, "more").commit
    desk.workbench.push(desk.task.id)
    save_request(desk, {"the first": first, "not here": "0123456789" * 4}.get(head or ""))
    delete_on_remote(desk)
    require_kept(desk, second)
