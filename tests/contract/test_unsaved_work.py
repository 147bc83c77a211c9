"""Files that no commit can hold are named, and no worktree is deleted with them without a word, in both layouts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.requirement import unavailable
from sandbox.errors import ErrorCode
from sandbox.files.mount_points import unmount_below
from sandbox.files.overlay_mounts import find_overlay_obstacle
from sandbox.models import WorkspaceRequest
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk


@pytest.fixture(params=["overlay", "plain"])
def desk(request: pytest.FixtureRequest, upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    if request.param == "overlay" and (reason := find_overlay_obstacle(tmp_path)):
        unavailable(f"no overlay mounts here: {reason}")
    home = tmp_path / "sandbox-home"
    home.mkdir()
    (home / "config.toml").write_text(f'[workspaces]\nworktree = "{request.param}"\n')
    desk = Desk(upstream, home)
    with desk.workbench:
        yield desk
    unmount_below(tmp_path)


def nest(desk: Desk) -> None:
    """Work beside and below a nested repository, as `git init pkg` makes it one."""
    desk.write("pkg/work.py", b"days of work\n")
    desk.write("pkg/sub/more.py", b"more\n")
    desk.write("pkg/noise.log", b"ignored")
    (desk.root / "pkg" / ".git").mkdir()


def test_files_of_a_nested_repository_are_named_and_hold_the_task_until_discarded(desk: Desk) -> None:
    nest(desk)
    found = desk.workbench.status(desk.task.id)
    assert (found.changes, found.rejected) == ((), ("pkg/.git", "pkg/sub/more.py", "pkg/work.py"))
    with refused(ErrorCode.DIRTY_WORKSPACE) as caught:
        desk.workbench.close_task(desk.task.id, delete_worktree=True)
    assert caught.value.details == "no commit can hold pkg/.git, pkg/sub/more.py, pkg/work.py"
    assert "--discard" in caught.value.hint
    assert (desk.root / "pkg" / "work.py").read_bytes() == b"days of work\n"
    desk.workbench.close_task(desk.task.id, delete_worktree=True, discard=True)
    assert not desk.root.exists()


def test_without_the_nested_git_they_are_ordinary_changes(desk: Desk) -> None:
    """Control: what the hint says is so."""
    nest(desk)
    (desk.root / "pkg" / ".git").rmdir()
    assert [c.path for c in desk.workbench.commit(desk.task.id, "x").files] == ["pkg/sub/more.py", "pkg/work.py"]
    desk.workbench.close_task(desk.task.id, delete_worktree=True)
    assert not desk.root.exists()


def test_a_nested_repository_without_files_holds_the_task_too(desk: Desk) -> None:
    """Its commits are in `.git`, which is never read. An ignored directory is build output, with all that it has."""
    (desk.root / "build" / ".git").mkdir(parents=True)
    (desk.root / "pkg" / ".git").mkdir(parents=True)
    with refused(ErrorCode.DIRTY_WORKSPACE) as caught:
        desk.workbench.close_task(desk.task.id, delete_worktree=True)
    assert caught.value.details == "no commit can hold pkg/.git"
    (desk.root / "pkg" / ".git").rmdir()
    desk.workbench.close_task(desk.task.id, delete_worktree=True)


def test_an_edit_and_a_commit_name_what_an_empty_nested_git_of_a_guest_hides(desk: Desk) -> None:
    (desk.root / "d" / ".GIT").mkdir()
    written = desk.workbench.write_file(desk.task.id, "d/new.py", "the agent's\n", None)
    assert (written.ignored, "nested" in written.note) == (("d/new.py",), True)
    tracked = desk.workbench.write_file(
        desk.task.id, "d/e/x", "changed\n", desk.workbench.read_file(desk.task.id, "d/e/x").sha256
    )
    assert (tracked.ignored, tracked.note) == ((), "")
    beside = desk.workbench.write_file(desk.task.id, "new.py", "x\n", None)
    assert (beside.ignored, beside.note) == ((), "")
    done = desk.workbench.commit(desk.task.id, "m")
    assert [file.path for file in done.files] == ["d/e/x", "new.py"]
    assert (done.note or "").endswith("no commit can hold d/.GIT, d/new.py")
    with refused(ErrorCode.NOTHING_TO_COMMIT) as caught:
        desk.workbench.commit(desk.task.id, "m")
    assert caught.value.details == "no commit can hold d/.GIT, d/new.py"
    with refused(ErrorCode.DIRTY_WORKSPACE):
        desk.workbench.close_task(desk.task.id, delete_worktree=True)


def test_a_clean_keeps_them_unless_they_are_named(desk: Desk) -> None:
    nest(desk)
    with refused(ErrorCode.DIRTY_WORKSPACE) as caught:
        desk.workbench.clean_task(desk.task.id)
    assert "pkg/work.py" in caught.value.details
    assert (desk.root / "pkg" / "work.py").exists()
    cleaned = desk.workbench.clean_task(desk.task.id, ["pkg"])
    assert (cleaned.rejected, (desk.root / "pkg").exists()) == ((), False)


def test_a_repository_is_not_removed_with_them(desk: Desk) -> None:
    nest(desk)
    os.mkfifo(desk.root / "pipe")
    desk.workbench.close_task(desk.task.id)
    with refused(ErrorCode.DIRTY_WORKSPACE) as caught:
        desk.workbench.remove_repository(desk.repo_id)
    expected = f"worktree of {desk.task.id}: no commit can hold pipe, pkg/.git, pkg/sub/more.py, pkg/work.py"
    assert caught.value.details == expected
    assert desk.workbench.remove_repository(desk.repo_id, discard=True).lost == (expected,)


@pytest.mark.parametrize("kind", ["clone", "worktree"])
def test_a_workspace_is_not_released_with_them(desk: Desk, kind: str) -> None:
    workspace = desk.workbench.acquire_workspace(kind, WorkspaceRequest(hint=desk.repo_id))
    assert workspace.root is not None
    workspace.write("pkg/work.py", b"days of work\n")
    (workspace.root / "pkg" / ".git").mkdir()
    with refused(ErrorCode.DIRTY_WORKSPACE) as caught:
        desk.workbench.release_workspace(workspace.id)
    assert caught.value.details == "no commit can hold pkg/.git, pkg/work.py"
    assert workspace.read("pkg/work.py") == b"days of work\n"
    (workspace.root / "pkg" / ".git").rmdir()
    workspace.restore("pristine")
    desk.workbench.release_workspace(workspace.id)
    assert not workspace.root.exists()
