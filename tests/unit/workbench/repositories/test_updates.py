"""Fresh commits: `repo update`, the fetch before a task begins, and what is left of a closed task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.command import Command
from sandbox.cli import main
from sandbox.errors import ErrorCode
from sandbox.git import transport
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield desk


@pytest.fixture
def sandbox(desk: Desk) -> Command:
    return Command(desk.home)


def test_a_task_starts_from_what_the_remote_has_now(desk: Desk, sandbox: Command) -> None:
    old, new = desk.task.base_commit, desk.upstream.commit("two")
    assert sandbox.ok("task", "create", desk.repo_id, "--offline")["task"]["base_commit"] == old
    assert sandbox.ok("task", "create", desk.repo_id)["task"]["base_commit"] == new


def test_offline_says_how_old_its_view_is(desk: Desk, sandbox: Command) -> None:
    said = sandbox("task", "create", desk.repo_id, "--offline").stderr
    assert f"the last fetch of {desk.repo_id} was" in said


def test_without_its_remote_a_task_is_refused_and_the_way_out_is_named(desk: Desk) -> None:
    desk.upstream.root.rename(desk.upstream.root.with_name("gone"))
    with refused(ErrorCode.REMOTE_NOT_FOUND) as caught:
        desk.workbench.create_task(desk.repo_id, fetch=True)
    assert f"`sandbox task create {desk.repo_id} --offline`" in caught.value.hint
    assert desk.workbench.create_task(desk.repo_id).base_commit == desk.task.base_commit


def test_for_agents_a_local_remote_is_left_as_it_is(desk: Desk) -> None:
    desk.upstream.commit("two")
    with Workbench(desk.home, environ={}) as network_only:
        assert network_only.create_task(desk.repo_id, fetch=True).base_commit == desk.task.base_commit


def test_an_update_names_both_commits(desk: Desk) -> None:
    new = desk.upstream.commit("two")
    found = desk.workbench.update_repository(desk.repo_id)
    assert (found.before, found.after) == (desk.task.base_commit, new)
    again = desk.workbench.update_repository(desk.repo_id)
    assert (again.before, again.after) == (new, new)


def test_nothing_new_is_one_request(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[object] = []

    def fetch(*arguments: object, **_: object) -> str:
        fetched.append(arguments)
        return ""

    monkeypatch.setattr(transport, "fetch", fetch)
    before = desk.workbench.fetched_at(desk.repo_id)
    desk.workbench.update_repository(desk.repo_id)
    after = desk.workbench.fetched_at(desk.repo_id)
    assert not fetched
    assert before is not None
    assert after is not None
    assert after > before
    desk.upstream.git("tag", "v1")
    desk.workbench.update_repository(desk.repo_id)
    assert fetched, "a new tag is something new"


def test_all_are_updated_though_one_is_gone(desk: Desk, sandbox: Command) -> None:
    desk.upstream.root.rename(desk.upstream.root.with_name("gone"))
    found = desk.workbench.update_repositories()
    assert [one.error.partition(":")[0] for one in found] == ["remote_not_found"]
    assert sandbox("repo", "update", "--all").code == 1
    assert sandbox("repo", "update").code == 2


def test_a_closed_and_deleted_task_leaves_no_ref(desk: Desk) -> None:
    desk.workbench.snapshot(desk.task.id)
    names = (desk.task.id, desk.task.branch)
    assert [sum(name in ref for ref in desk.refs()) for name in names] == [1, 1]
    desk.workbench.close_task(desk.task.id, delete_worktree=True, discard=True)
    assert not any(name in ref for ref in desk.refs() for name in names)


def test_commits_that_exist_only_here_keep_their_branch(desk: Desk) -> None:
    desk.write("new", b"work\n")
    desk.workbench.commit(desk.task.id, "work")
    desk.workbench.close_task(desk.task.id, delete_worktree=True)
    assert any(ref.startswith(f"refs/heads/{desk.task.branch}") for ref in desk.refs())


def test_a_task_closed_without_delete_keeps_its_branch(desk: Desk) -> None:
    desk.workbench.close_task(desk.task.id)
    assert any(ref.startswith(f"refs/heads/{desk.task.branch}") for ref in desk.refs())


def update(desk: Desk, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["--home", str(desk.home), "repo", "update", desk.repo_id]) == 0
    return capsys.readouterr().out


def test_an_update_says_which_branches_were_rewritten(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.upstream.git("branch", "topic")
    desk.upstream.commit("two")
    assert "rewritten" not in update(desk, capsys)
    desk.upstream.git("reset", "-q", "--hard", "HEAD~1")
    new = desk.upstream.commit("another two")
    found = desk.workbench.update_repository(desk.repo_id)
    assert (found.after, found.rewritten) == (new, ("main",))
    desk.upstream.git("branch", "-f", "topic", "main")
    desk.upstream.commit("three")
    assert desk.workbench.update_repository(desk.repo_id).rewritten == ()
    desk.upstream.git("branch", "-f", "topic", "main~2")
    assert "rewritten by a force push: topic" in update(desk, capsys)


def test_an_update_says_that_the_default_branch_has_another_name(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.upstream.git("branch", "-m", "main", "trunk")
    assert "the default branch is trunk now, it was main" in update(desk, capsys)
    assert "trunk is up to date" in update(desk, capsys)
