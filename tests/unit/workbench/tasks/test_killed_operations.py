"""A command that is killed on the way: the next one goes on with the state that the killed one meant."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import refs, set_aside
from sandbox.git.process import Git
from sandbox.models import LeftoverAction, SyncState
from sandbox.workbench.tasks import pending_moves, snapshots, sync, worktrees
from sandbox.workspaces import restore
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield desk


def kill_in(act: Callable[[], object], module: object, name: str, *, after: bool = False) -> None:
    """Do it in a child that is killed in place of the function with this name in the module, or right after it."""
    child = os.fork()
    if child == 0:
        original = getattr(module, name)

        def die(*args: object, **options: object) -> None:
            if after:
                original(*args, **options)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(module, name, die)
        try:
            act()
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


def lose_worktree(desk: Desk) -> None:
    services = desk.workbench._services
    worktrees.delete_files(worktrees.locate_worktree(services.home, services.policies, desk.repo_id, desk.task.id))


def test_a_clean_after_a_killed_clean_makes_the_state_of_then_not_a_newer_snapshot(desk: Desk) -> None:
    workbench, task_id = desk.workbench, desk.task.id
    desk.write("f", b"wanted\n")
    wanted = workbench.snapshot(task_id, "")
    desk.write("f", b"tried and dropped\n")
    workbench.snapshot(task_id, "")
    workbench.restore(task_id, wanted.id)
    kill_in(lambda: workbench.clean_task(task_id), worktrees, "delete_worktree", after=True)
    assert not desk.root.exists()
    assert workbench.clean_task(task_id).previous == wanted
    assert (desk.root / "f").read_bytes() == b"wanted\n"

    desk.write("f", b"newer\n")
    newer = workbench.snapshot(task_id, "")
    lose_worktree(desk)
    assert workbench.clean_task(task_id).previous == newer
    assert not [ref for ref in desk.refs() if ref.split()[0].endswith("/latest")]


def test_a_clean_after_a_killed_clean_that_discards_has_no_changes(desk: Desk) -> None:
    workbench, task_id = desk.workbench, desk.task.id
    desk.write("f", b"discarded\n")
    workbench.snapshot(task_id, "")
    kill_in(lambda: workbench.clean_task(task_id, discard=True), worktrees, "delete_worktree", after=True)
    done = workbench.clean_task(task_id)
    assert (done.previous, done.changes) == (None, ())
    assert (desk.root / "f").read_bytes() == b"one\ntwo\n"


def test_a_snapshot_after_the_clock_was_set_back_is_the_newest(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fast(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]  # no `Self` is made
            return datetime.now(tz) + timedelta(days=2)

    workbench, task_id = desk.workbench, desk.task.id
    with monkeypatch.context() as patched:
        patched.setattr(snapshots, "datetime", Fast)
        desk.write("f", b"old\n")
        workbench.snapshot(task_id, "old")
    desk.write("f", b"newest\n")
    newest = workbench.snapshot(task_id, "newest")
    assert [one.label for one in workbench.snapshots(task_id)] == ["old", "newest"]
    assert workbench.snapshots(task_id)[-1] == newest
    lose_worktree(desk)
    assert workbench.clean_task(task_id).previous == newest
    assert (desk.root / "f").read_bytes() == b"newest\n"


STEPS = {
    "first file": (restore, "write_state", True),
    "files": (refs, "move_ref", False),
    "branch": (sync, "save_task", False),
    "record": (sync, "end_move", False),
}


def diverge(desk: Desk) -> str:
    """The task has a commit, the remote one of a colleague, which is fetched. Returns the latter."""
    desk.write("f", b"one\ntwo\nmine\n")
    desk.workbench.commit(desk.task.id, "mine")
    desk.upstream.write("theirs.txt", b"theirs\n")
    desk.upstream.write("d/e/x", b"rewritten by a colleague\n")
    (desk.upstream.root / "d" / "y").unlink()
    theirs = desk.upstream.commit()
    desk.workbench.clone(str(desk.upstream.root))
    return theirs


@pytest.mark.parametrize("by_gc", [True, False], ids=["gc", "next operation"])
@pytest.mark.parametrize("step", STEPS)
def test_after_a_killed_sync_no_change_of_others_is_the_tasks(desk: Desk, step: str, by_gc: bool) -> None:
    workbench, task_id = desk.workbench, desk.task.id
    theirs = diverge(desk)
    before = workbench.task(task_id)
    module, name, after = STEPS[step]
    kill_in(lambda: workbench.sync_task(task_id), module, name, after=after)
    if by_gc:
        left = [(one.kind, one.action) for one in workbench.collect().leftovers if one.name == task_id]
        assert left == [("move", LeftoverAction.RESTORED)]
        assert not workbench.status(task_id).changes
        assert not [one for one in workbench.collect().leftovers if one.name == task_id]
    else:
        with refused(ErrorCode.NOTHING_TO_COMMIT):
            workbench.commit(task_id, "mine, too")
    is_done = step in {"branch", "record"}
    assert (workbench.task(task_id).head_commit == before.head_commit) is not is_done
    assert workbench.sync_task(task_id).state is (SyncState.UP_TO_DATE if is_done else SyncState.SYNCED)
    assert workbench.task(task_id).base_commit == theirs
    assert (desk.root / "f").read_bytes() == b"one\ntwo\nmine\n"
    assert (desk.root / "theirs.txt").read_bytes() == b"theirs\n"
    assert not (desk.root / "d" / "y").exists()
    assert not list((desk.home / "repositories" / "tasks").glob("*.moving"))


def test_after_a_killed_checkout_uncommitted_changes_are_as_before(desk: Desk) -> None:
    workbench, task_id = desk.workbench, desk.task.id
    diverge(desk)
    task = workbench.create_task(desk.repo_id, "behind", desk.task.base_commit)
    assert task.worktree_path
    (task.worktree_path / "f").write_bytes(b"uncommitted\n")
    before = workbench.status(task.id)
    kill_in(lambda: workbench.checkout_task(task.id, "HEAD"), refs, "move_ref")
    kill_in(lambda: workbench.checkout_task(task.id, "HEAD"), sync, "save_task")
    assert workbench.commit(task.id, "mine").files == before.changes
    assert task_id != task.id


def test_a_file_that_was_changed_after_a_kill_is_not_overwritten(desk: Desk) -> None:
    workbench, task_id = desk.workbench, desk.task.id
    diverge(desk)
    kill_in(lambda: workbench.sync_task(task_id), refs, "move_ref")
    desk.write("theirs.txt", b"by a person\n")
    (desk.root / "d" / "e" / "x").unlink()
    (desk.root / "d" / "e" / "x").mkdir()
    [move] = [one for one in workbench.collect().leftovers if one.name == task_id]
    assert ("theirs.txt" in move.note, "d/e/x" in move.note) == (True, True)
    assert (desk.root / "theirs.txt").read_bytes() == b"by a person\n"
    assert (desk.root / "d" / "y").exists()


def test_a_move_that_is_refused_or_killed_does_not_outlive_its_task(desk: Desk) -> None:
    workbench, task_id = desk.workbench, desk.task.id
    diverge(desk)
    desk.upstream.write("in-the-way.log", b"theirs\n")
    desk.upstream.git("add", "-f", "in-the-way.log")
    desk.upstream.commit()
    desk.workbench.clone(str(desk.upstream.root))
    ignored = desk.write("in-the-way.log", b"mine\n")
    with refused(ErrorCode.CONFLICT):
        workbench.sync_task(task_id)
    assert not list((desk.home / "repositories" / "tasks").glob("*.moving"))
    ignored.unlink()
    kill_in(lambda: workbench.sync_task(task_id), refs, "move_ref")
    workbench.close_task(task_id, delete_worktree=True)
    assert not list((desk.home / "repositories" / "tasks").glob("*.moving"))


def file_to_directory(root: Path) -> None:
    (root / "d" / "y").unlink()
    (root / "d" / "y").mkdir()
    (root / "d" / "y" / "z").write_bytes(b"theirs\n")


def directory_to_link(root: Path) -> None:
    shutil.rmtree(root / "d")
    (root / "d").symlink_to("f")


@pytest.mark.parametrize("after_files", [True, False], ids=["all files", "first file"])
@pytest.mark.parametrize("replace", [file_to_directory, directory_to_link])
def test_a_killed_sync_that_replaces_a_directory_is_changed_back_whole(
    desk: Desk, replace: Callable[[Path], None], after_files: bool
) -> None:
    workbench, task_id = desk.workbench, desk.task.id
    desk.write("f", b"mine\n")
    workbench.commit(task_id, "mine")
    replace(desk.upstream.root)
    desk.upstream.commit()
    workbench.clone(str(desk.upstream.root))
    module, name, after = STEPS["files" if after_files else "first file"]
    kill_in(lambda: workbench.sync_task(task_id), module, name, after=after)
    [move] = [one for one in workbench.collect().leftovers if one.name == task_id]
    assert "but for" not in move.note
    assert not workbench.status(task_id).changes
    assert (desk.root / "d" / "e" / "x").is_file()
    assert workbench.sync_task(task_id).state is SyncState.SYNCED


def test_a_link_that_was_made_after_a_kill_is_not_written_through_and_stays(desk: Desk, tmp_path: Path) -> None:
    workbench, task_id = desk.workbench, desk.task.id
    diverge(desk)
    kill_in(lambda: workbench.sync_task(task_id), refs, "move_ref")
    shutil.rmtree(desk.root / "d")
    (desk.root / "d").symlink_to(tmp_path)
    [move] = [one for one in workbench.collect().leftovers if one.name == task_id]
    assert ("d/e/x" in move.note, "d/y" in move.note) == (True, True)
    assert (desk.root / "d").readlink() == tmp_path
    assert not (tmp_path / "y").exists()


def find_moves(desk: Desk) -> list[str]:
    """What is left of a move: notes and refs."""
    notes = [path.suffix for path in (desk.home / "repositories" / "tasks").glob("*.moving*")]
    return notes + [ref for ref in desk.refs() if ref.split()[0].endswith("/moving")]


def repair_without(desk: Desk, *, ref: bool) -> None:
    """Repair the clone. `ref`: the one of the move is not copied."""
    clone = desk.home / "repositories" / "clones" / desk.repo_id
    if ref:
        refs.drop_ref(Git(clone), f"refs/sandbox/{desk.task.id}/moving")
    (clone / "refs/remotes/origin").mkdir(parents=True, exist_ok=True)
    (clone / "refs/remotes/origin/new").write_bytes(b"")
    desk.upstream.commit("new on the remote")
    desk.workbench.clone(str(desk.upstream.root))
    assert len(set_aside.list_set_aside(clone)) == 1


def test_a_killed_sync_is_changed_back_after_a_repair_of_the_clone(desk: Desk) -> None:
    workbench, task_id = desk.workbench, desk.task.id
    diverge(desk)
    kill_in(lambda: workbench.sync_task(task_id), refs, "move_ref")
    repair_without(desk, ref=False)
    with refused(ErrorCode.NOTHING_TO_COMMIT):
        workbench.commit(task_id, "mine, too")
    assert not find_moves(desk)
    assert workbench.sync_task(task_id).state is SyncState.SYNCED
    assert not find_moves(desk)


UNUSABLE = ["lost", "empty", "newer"]


def spoil(desk: Desk, how: str) -> None:
    """A sync is killed, and what it left cannot be used."""
    diverge(desk)
    kill_in(lambda: desk.workbench.sync_task(desk.task.id), refs, "move_ref")
    [note] = (desk.home / "repositories" / "tasks").glob("*.moving")
    if how == "lost":
        repair_without(desk, ref=True)
    elif how == "empty":
        note.write_bytes(b"")
    else:
        record = json.loads(note.read_text())
        record["moved"]["field_of_tomorrow"] = 1
        note.write_text(json.dumps(record))


@pytest.mark.parametrize("how", UNUSABLE)
def test_a_move_that_cannot_be_finished_does_not_stop_gc(desk: Desk, how: str) -> None:
    workbench, task_id = desk.workbench, desk.task.id
    spoil(desk, how)
    with refused(ErrorCode.DIRTY_WORKSPACE) as failure:
        workbench.commit(task_id, "theirs as mine")
    assert ("killed" in failure.value.brief, "--discard" in failure.value.hint) == (True, True)
    [move] = [one for one in workbench.collect().leftovers if one.name == task_id]
    assert (move.action, ".moving-unused" in move.note) == (LeftoverAction.KEPT, True)
    assert find_moves(desk) == [".moving-unused"]
    assert workbench.snapshot(task_id, "as it is")
    workbench.close_task(task_id)
    assert not find_moves(desk)


@pytest.mark.parametrize("how", UNUSABLE)
def test_a_move_that_cannot_be_finished_stops_no_clean_that_discards(desk: Desk, how: str) -> None:
    workbench, task_id = desk.workbench, desk.task.id
    spoil(desk, how)
    with refused(ErrorCode.DIRTY_WORKSPACE):
        workbench.clean_task(task_id)
    assert not workbench.clean_task(task_id, discard=True).changes
    assert not find_moves(desk)
    assert workbench.sync_task(task_id).state is SyncState.SYNCED


@pytest.mark.parametrize("how", UNUSABLE)
def test_a_move_that_cannot_be_finished_stops_no_close(desk: Desk, how: str) -> None:
    workbench, task_id = desk.workbench, desk.task.id
    spoil(desk, how)
    with refused(ErrorCode.DIRTY_WORKSPACE):
        workbench.close_task(task_id, delete_worktree=True)
    assert find_moves(desk)
    workbench.close_task(task_id)
    assert not find_moves(desk)


def test_a_close_that_discards_a_killed_sync_deletes_all_refs_of_the_task(desk: Desk) -> None:
    workbench, task_id = desk.workbench, desk.task.id
    diverge(desk)
    workbench.push(task_id)
    kill_in(lambda: workbench.sync_task(task_id), refs, "move_ref")
    workbench.close_task(task_id, delete_worktree=True, discard=True)
    assert not find_moves(desk)
    assert not [ref for ref in desk.refs() if task_id in ref]


def test_a_full_disk_does_not_stop_a_clean_that_discards_after_a_killed_sync(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(*_: object) -> None:
        raise SandboxError(ErrorCode.QUOTA_EXCEEDED, "The disk is full")

    workbench, task_id = desk.workbench, desk.task.id
    diverge(desk)
    kill_in(lambda: workbench.sync_task(task_id), refs, "move_ref")
    monkeypatch.setattr(pending_moves, "_change_back", is_full)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        workbench.snapshot(task_id, "")
    assert not workbench.clean_task(task_id, discard=True).changes
    assert not find_moves(desk)


def test_gc_deletes_what_was_kept_for_a_move_that_is_over(desk: Desk) -> None:
    workbench, task_id = desk.workbench, desk.task.id
    diverge(desk)
    kill_in(lambda: workbench.sync_task(task_id), pending_moves, "drop_kept_files")
    assert len(find_moves(desk)) == 1
    left = [(one.kind, one.action) for one in workbench.collect().leftovers if one.name == task_id]
    assert left == [("move", LeftoverAction.REMOVED)]
    assert not find_moves(desk)
