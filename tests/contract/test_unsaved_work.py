"""Files that no commit can hold are named, and no worktree is deleted with them without a word, in both layouts."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from devtools.requirement import unavailable
from sandbox.errors import ErrorCode
from sandbox.files.mount_points import unmount_below
from sandbox.files.overlay_mounts import find_overlay_obstacle
from sandbox.files.stamps import keeps_times
from sandbox.models import WorkspaceRequest
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk


@pytest.fixture(params=["overlay", "plain"])
def desk(request: pytest.FixtureRequest, upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    if request.param == "overlay" and (reason := find_overlay_obstacle(tmp_path)):
        unavailable(f"no overlay mounts here: {reason}")
    with open_desk(upstream, tmp_path, request.param) as desk:
        yield desk


@pytest.fixture
def plain(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    with open_desk(upstream, tmp_path, "plain") as desk:
        yield desk


@contextmanager
def open_desk(upstream: Upstream, place: Path, layout: str) -> Iterator[Desk]:
    home = place / "sandbox-home"
    home.mkdir()
    (home / "config.toml").write_text(f'[workspaces]\nworktree = "{layout}"\n')
    desk = Desk(upstream, home)
    with desk.workbench:
        yield desk
    unmount_below(place)


def nest(desk: Desk) -> None:
    """Work beside and below a nested repository, as `git init pkg` makes it one."""
    desk.write("pkg/work.py", b"days of work\n")
    desk.write("pkg/sub/more.py", b"more\n")
    desk.write("pkg/noise.log", b"ignored")
    (desk.root / "pkg" / ".git").mkdir()


def test_an_ignored_pipe_holds_no_task(desk: Desk) -> None:
    """As a server leaves it. Control: one that is not ignored does."""
    os.mkfifo(desk.root / "app")
    with refused(ErrorCode.DIRTY_WORKSPACE):
        desk.workbench.close_task(desk.task.id, delete_worktree=True)
    (desk.root / "app").rename(desk.root / "app.log")
    desk.workbench.close_task(desk.task.id, delete_worktree=True)


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


class MappedFile:
    """A file that a process of this host has mapped. `edit` changes it until a look that trusts stamps does not see it:
    the first store through a mapping moves ctime, the next stores to the page do not.
    """

    def __init__(self, path: Path, stack: ExitStack) -> None:
        if not keeps_times(path.parent):
            unavailable("times of this file system prove nothing")
        self.path, self.content = path, path.read_bytes()
        self.view = stack.enter_context(mmap.mmap(stack.enter_context(path.open("r+b")).fileno(), len(self.content)))

    def edit(self, look: Callable[[], Sequence[object]]) -> None:
        deadline = time.monotonic() + 20
        while True:
            self.view[:1] = self.content[:1]
            look()
            self.view[:1] = b"Z"
            if not look():
                break
            assert time.monotonic() < deadline, "void: every edit was seen"
        assert self.path.read_bytes()[:1] == b"Z"


def test_an_edit_through_a_mapping_is_read_before_a_clone_is_committed_or_released(plain: Desk) -> None:
    workspace = plain.workbench.acquire_workspace("clone", WorkspaceRequest(hint=plain.repo_id))
    assert workspace.root is not None
    with ExitStack() as stack:
        MappedFile(workspace.root / "f", stack).edit(workspace.diff)
        with refused(ErrorCode.DIRTY_WORKSPACE):
            plain.workbench.release_workspace(workspace.id)
        assert workspace.snapshot() != "pristine"
        workspace.commit("the edit")
    assert list(workspace.diff()) == []
    plain.workbench.release_workspace(workspace.id)


def test_an_edit_through_a_mapping_is_read_before_a_plain_worktree_is_committed_or_released(plain: Desk) -> None:
    workspace = plain.workbench.acquire_workspace("worktree", WorkspaceRequest(hint=plain.repo_id))
    assert workspace.root is not None
    with ExitStack() as stack:
        MappedFile(workspace.root / "f", stack).edit(workspace.diff)
        with refused(ErrorCode.DIRTY_WORKSPACE):
            plain.workbench.release_workspace(workspace.id)
        assert workspace.snapshot() != "pristine"
        workspace.commit("the edit")
    plain.workbench.release_workspace(workspace.id)


def test_an_edit_through_a_mapping_is_read_before_files_are_deleted(plain: Desk) -> None:
    with ExitStack() as stack:
        MappedFile(plain.root / "f", stack).edit(lambda: plain.workbench.status(plain.task.id).changes)
        assert [c.path for c in plain.workbench.clean_task(plain.task.id).changes] == ["f"]
    with ExitStack() as stack:
        mapped = MappedFile(plain.root / "run", stack)
        plain.workbench.restore(plain.task.id, "head")
        mapped.edit(lambda: plain.workbench.status(plain.task.id).changes)
        with refused(ErrorCode.DIRTY_WORKSPACE):
            plain.workbench.close_task(plain.task.id, delete_worktree=True)
        plain.workbench.close_task(plain.task.id)
        with refused(ErrorCode.DIRTY_WORKSPACE):
            plain.workbench.remove_repository(plain.repo_id)
