"""Snapshot, restore, fork: nothing is lost, all or nothing, no ref leaks. Ids: THREATS C, H, P."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import WorktreeFiles
from sandbox.git import blobs, new_commits, refs
from sandbox.git.process import Git
from sandbox.models import ChangeKind
from sandbox.policy.paths import RepoPath
from sandbox.workbench.tasks import lifecycle
from sandbox.workspaces import restore
from tests.unit.conftest import Upstream, initialised, refused
from tests.unit.desk import BINARY, Desk, change_each_kind, on_disk

_ResultT = TypeVar("_ResultT")


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield desk


def snapshot_refs(desk: Desk) -> list[str]:
    return [ref for ref in desk.refs() if "/snapshots/" in ref]


def change_all_kinds(desk: Desk) -> None:
    change_each_kind(desk)
    desk.write("new/deep/file", b"new\n")
    desk.write("noise.log", b"ignored")


# --- snapshot


def test_a_snapshot_is_a_commit_of_the_working_state_on_the_head(desk: Desk) -> None:
    change_all_kinds(desk)
    taken = desk.workbench.snapshot(desk.task.id, "before  the\nrefactoring\x1b[31m")
    assert desk.git("rev-parse", f"{taken.commit}^", f"{taken.commit}^{{tree}}").split() == [
        desk.task.head_commit, taken.tree,
    ]  # fmt: skip
    assert snapshot_refs(desk) == [f"refs/sandbox/{desk.task.id}/snapshots/{taken.id} {taken.commit}"]
    assert desk.git("show", f"{taken.tree}:new/deep/file") == "new\n"
    (listed,) = desk.workbench.snapshots(desk.task.id)
    assert listed == taken.model_copy(update={"created_at": listed.created_at})
    assert abs((listed.created_at - taken.created_at).total_seconds()) < 0.001
    assert listed.label == "before the refactoring [31m"
    assert desk.workbench.status(desk.task.id).dirty
    assert desk.workbench.task(desk.task.id) == desk.task


def test_a_snapshot_of_an_unchanged_state_is_the_same_one(desk: Desk) -> None:
    first = desk.workbench.snapshot(desk.task.id)
    assert desk.workbench.snapshot(desk.task.id) == first.model_copy(
        update={"created_at": desk.workbench.snapshots(desk.task.id)[0].created_at}
    )
    named = desk.workbench.snapshot(desk.task.id, "named")
    assert named.id != first.id
    assert desk.workbench.snapshot(desk.task.id, "named").id == named.id
    desk.write("f", b"2")
    assert desk.workbench.snapshot(desk.task.id, "named").id != named.id
    assert len(snapshot_refs(desk)) == 3
    assert [s.label for s in desk.workbench.snapshots(desk.task.id)] == ["", "named", "named"]


def test_a_label_has_a_limit(desk: Desk) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        desk.workbench.snapshot(desk.task.id, "x" * 201)
    assert "201" in caught.value.hint
    assert snapshot_refs(desk) == []


def test_c06_what_no_tree_can_hold_is_named_and_left_out(desk: Desk) -> None:
    (desk.root / "nested" / ".git").mkdir(parents=True)
    (desk.root / "nested" / ".git" / "config").write_text("[core]\n\tfsmonitor = /nonexistent\n")
    os.mkfifo(desk.root / "pipe")
    (desk.root / "out").symlink_to("/etc/passwd")
    desk.write("f", b"2")
    taken = desk.workbench.snapshot(desk.task.id)
    assert taken.rejected == ("nested/.git", "out", "pipe")
    assert desk.git("diff-tree", "-r", "--name-only", desk.task.head_commit, taken.tree).split() == ["f"]


# --- restore


def test_a_restore_brings_bytes_modes_and_links_back_and_leaves_ignored_files(desk: Desk) -> None:
    change_all_kinds(desk)
    wanted = on_disk(desk.root)
    taken = desk.workbench.snapshot(desk.task.id)
    (desk.root / "new" / "deep" / "file").unlink()
    (desk.root / "new" / "deep").rmdir()
    desk.write("new/deep", b"now a file", executable=True)
    (desk.root / "f").unlink()
    (desk.root / "f").symlink_to("run")
    (desk.root / "link").unlink()
    desk.write("link/is/a/folder", b"x")
    desk.write("noise.log", b"ignored, newer")
    lost = on_disk(desk.root)
    restored = desk.workbench.restore(desk.task.id, taken.id)
    newer = {"noise.log": ("file", b"ignored, newer")}
    assert on_disk(desk.root) == wanted | newer
    assert not (desk.root / "link").is_dir() or (desk.root / "link").is_symlink()
    assert restored.tree == taken.tree == desk.workbench.snapshot(desk.task.id).tree
    assert {(c.path, c.kind) for c in restored.changes} >= {("f", ChangeKind.MODIFIED), ("d/y", ChangeKind.DELETED)}
    assert restored.previous.label == "before a restore"
    again = desk.workbench.restore(desk.task.id, restored.previous.id)
    assert on_disk(desk.root) == lost
    assert again.previous.tree == taken.tree


@pytest.mark.parametrize("spelled", ["word", "id"])
@pytest.mark.parametrize("which", ["head", "base"])
def test_a_restore_to_a_commit_does_not_move_the_branch(desk: Desk, which: str, spelled: str) -> None:
    desk.write("f", b"2")
    desk.workbench.commit(desk.task.id, "x")
    task = desk.workbench.task(desk.task.id)
    desk.write("f", b"3")
    commit = task.head_commit if which == "head" else task.base_commit
    restored = desk.workbench.restore(task.id, which if spelled == "word" else commit)
    assert (desk.root / "f").read_bytes() == (b"2" if which == "head" else b"one\ntwo\n")
    assert restored.dirty == (which == "base")
    assert desk.workbench.task(task.id) == task
    assert desk.git("rev-parse", f"refs/heads/{task.branch}").strip() == task.head_commit


@pytest.mark.parametrize(
    "name", ["", "snap-0", "HEAD", "main", "refs/heads/main", "../../x", "--all", "snap-*", "a" * 40, "head^"]
)
def test_only_an_own_snapshot_or_commit_can_be_restored(desk: Desk, name: str) -> None:
    desk.workbench.snapshot(desk.task.id)
    with refused(ErrorCode.NOT_FOUND):
        desk.workbench.restore(desk.task.id, name)


def test_another_tasks_snapshot_cannot_be_read_through_restore_or_fork(desk: Desk) -> None:
    """Control: its own task can restore it."""
    other = desk.workbench.create_task(desk.repo_id, "other")
    (desk.worktree(other) / "private").write_bytes(b"of the other")
    taken = desk.workbench.snapshot(other.id)
    for spelling in (taken.id, taken.commit, taken.tree, f"../{other.id}/snapshots/{taken.id}"):
        with refused(ErrorCode.NOT_FOUND):
            desk.workbench.restore(desk.task.id, spelling)
        with refused(ErrorCode.NOT_FOUND):
            desk.workbench.fork_task(desk.task.id, spelling)
    assert not (desk.root / "private").exists()
    assert snapshot_refs(desk) == [f"refs/sandbox/{other.id}/snapshots/{taken.id} {taken.commit}"]
    (desk.worktree(other) / "private").unlink()
    desk.workbench.restore(other.id, taken.id)
    assert (desk.worktree(other) / "private").read_bytes() == b"of the other"


def test_nothing_is_snapshot_restored_or_forked_while_something_runs(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = desk.workbench.snapshot(desk.task.id)
    monkeypatch.setattr(lifecycle.lock_task.__wrapped__, "__defaults__", (0.05, None))  # type: ignore[attr-defined]
    with desk.workbench._services.home.locked(desk.task.id):  # as a running check holds it
        acts: tuple[Callable[[], object], ...] = (
            lambda: desk.workbench.snapshot(desk.task.id),
            lambda: desk.workbench.restore(desk.task.id, taken.id),
            lambda: desk.workbench.fork_task(desk.task.id),
        )
        for act in acts:
            with refused(ErrorCode.CONFLICT):
                in_another_thread(act)
        forked = in_another_thread(lambda: desk.workbench.fork_task(desk.task.id, taken.id))
    assert forked.forked_from == desk.task.id
    desk.workbench.restore(desk.task.id, taken.id)  # the control: now it may


def in_another_thread(act: Callable[[], _ResultT]) -> _ResultT:
    """The lock is one of threads too; raises what `act` raised."""
    outcome: list[_ResultT | SandboxError] = []

    def run() -> None:
        try:
            outcome.append(act())
        except SandboxError as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(timeout=60)
    (found,) = outcome
    if isinstance(found, SandboxError):
        raise found
    return found


# --- restore under attack


def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "f").write_bytes(b"of the host")
    (folder / "x").write_bytes(b"of the host")
    return folder


def untouched(folder: Path) -> bool:
    return on_disk(folder) == {"f": ("file", b"of the host"), "x": ("file", b"of the host")}


@pytest.mark.parametrize("where", ["file", "folder", "dangling"])
def test_h_links_planted_where_files_go_are_replaced_and_never_followed(desk: Desk, tmp_path: Path, where: str) -> None:
    """Control: a writer that opens the name follows the link and hits the host's file."""
    folder = outside(tmp_path)
    taken = desk.workbench.snapshot(desk.task.id)
    wanted = on_disk(desk.root)
    if where == "folder":
        for name in ("x",):
            (desk.root / "d" / "e" / name).unlink()
        (desk.root / "d" / "e").rmdir()
        (desk.root / "d" / "e").symlink_to(folder)
        hit, control = folder / "x", desk.root / "d" / "e" / "x"
    else:
        (desk.root / "f").unlink()
        hit = folder / ("f" if where == "file" else "made")
        (desk.root / "f").symlink_to(hit)
        control = desk.root / "f"
    control.write_bytes(b"followed")
    assert hit.read_bytes() == b"followed", "void"
    hit.write_bytes(b"of the host") if where != "dangling" else hit.unlink()
    assert desk.workbench.status(desk.task.id).rejected
    desk.workbench.restore(desk.task.id, taken.id)
    assert untouched(folder)
    assert on_disk(desk.root) == wanted


def _fifo(desk: Desk) -> None:
    (desk.root / "f").unlink()
    os.mkfifo(desk.root / "f")


def _nested_repository(desk: Desk) -> None:
    (desk.root / "f").unlink()
    initialised(desk.root / "f")


def _ignored_files(desk: Desk) -> None:
    (desk.root / "f").unlink()
    desk.write("f/noise.log", b"ignored")


@pytest.mark.parametrize("plant", [_fifo, _nested_repository, _ignored_files])
def test_what_cannot_be_replaced_is_a_typed_refusal_and_the_files_are_as_they_were(
    desk: Desk, plant: Callable[[Desk], None]
) -> None:
    taken = desk.workbench.snapshot(desk.task.id)
    desk.write("run", b"work\n", executable=True)
    desk.write("a-new-one", b"work\n")
    plant(desk)
    before = on_disk(desk.root)
    with refused(ErrorCode.UNSAFE_PATH) as caught:
        desk.workbench.restore(desk.task.id, taken.id)
    assert "f" in caught.value.brief
    assert "fork" in caught.value.hint
    assert on_disk(desk.root) == before
    forked = desk.workbench.fork_task(desk.task.id, taken.id)  # the way out that the hint names
    assert (desk.worktree(forked) / "f").read_bytes() == b"one\ntwo\n"


def test_an_ignored_file_in_the_place_of_a_tracked_one_is_not_overwritten(upstream: Upstream, tmp_path: Path) -> None:
    """Its content is in no snapshot. Control: with the same content it is no obstacle."""
    upstream.write("kept.log", b"tracked although ignored\n")
    desk = Desk(upstream, tmp_path / "sandbox-home")
    taken = desk.workbench.snapshot(desk.task.id)
    (desk.root / "kept.log").unlink()
    desk.workbench.commit(desk.task.id, "remove it")
    desk.write("kept.log", b"output of a build\n")
    desk.write("f", b"2")
    with refused(ErrorCode.CONFLICT):
        desk.workbench.restore(desk.task.id, taken.id)
    assert (desk.root / "kept.log").read_bytes() == b"output of a build\n"
    assert (desk.root / "f").read_bytes() == b"2"
    desk.write("kept.log", b"tracked although ignored\n")
    desk.workbench.restore(desk.task.id, taken.id)
    assert (desk.root / "f").read_bytes() == b"one\ntwo\n"


def test_a_file_that_changes_under_our_hands_is_not_overwritten(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = desk.workbench.snapshot(desk.task.id)
    desk.write("f", b"seen\n")
    desk.write("a", b"new\n")
    plan = restore.plan_steps

    def meanwhile(*args: object) -> object:
        desk.write("f", b"of somebody else\n")
        return plan(*args)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr(restore, "plan_steps", meanwhile)
    with refused(ErrorCode.CONFLICT):
        desk.workbench.restore(desk.task.id, taken.id)
    assert (desk.root / "f").read_bytes() == b"of somebody else\n"
    assert (desk.root / "a").read_bytes() == b"new\n"


# --- every step breaks


class Broken(Exception):
    """What a broken step raises."""


def breaking(monkeypatch: pytest.MonkeyPatch, target: object, name: str, nth: int) -> list[int]:
    """From the nth call on once, `name` of `target` raises instead of working; returns the calls so far."""
    calls: list[int] = []
    real = getattr(target, name)

    def act(*args: object, **kwargs: object) -> object:
        calls.append(1)
        if len(calls) == nth:
            raise Broken
        return real(*args, **kwargs)

    monkeypatch.setattr(target, name, act)
    return calls


STEPS: dict[str, tuple[object, str]] = {
    "write": (WorktreeFiles, "write"),
    "write-link": (WorktreeFiles, "write_link"),
    "remove": (WorktreeFiles, "remove"),
    "build": (new_commits, "build_tree"),
    "commit": (new_commits, "commit_tree"),
    "ref": (refs, "move_ref"),
    "plan": (restore, "plan_steps"),
    "put": (restore, "write_state"),
}


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("step", STEPS)
def test_p03_a_restore_that_breaks_at_any_step_changes_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, step: str, nth: int
) -> None:
    taken = desk.workbench.snapshot(desk.task.id)
    change_all_kinds(desk)
    (desk.root / "out").symlink_to("/etc/passwd")
    before, state = on_disk(desk.root), desk.workbench.status(desk.task.id)
    with monkeypatch.context() as patched:
        calls = breaking(patched, *STEPS[step], nth)
        try:
            desk.workbench.restore(desk.task.id, taken.id)
        except Broken:
            assert on_disk(desk.root) == before
            assert desk.workbench.status(desk.task.id) == state
        else:
            assert len(calls) < nth, "the step broke and nobody noticed"
    kept = {s.label for s in desk.workbench.snapshots(desk.task.id)}
    assert kept <= {"", "before a restore"}
    assert not [ref for ref in desk.refs() if "building" in ref]
    desk.workbench.restore(desk.task.id, taken.id)  # and it can be repeated
    assert desk.workbench.snapshot(desk.task.id).tree == taken.tree


def test_p03_what_needs_no_content_is_taken_back_when_git_cannot_be_read_either(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full stops the restore, and the file of names that git is given to read what was there."""
    taken = desk.workbench.snapshot(desk.task.id)
    change_all_kinds(desk)
    before = on_disk(desk.root)
    real, asked = blobs.stream_blobs, list[int]()

    def read_once(git: Git, oids: Sequence[str]) -> Iterator[blobs.BlobReader]:
        asked.append(1)
        if len(asked) > 1:
            raise OSError(errno.ENOSPC, "no space left")
        return real(git, oids)

    monkeypatch.setattr(restore, "stream_blobs", read_once)
    breaking(monkeypatch, restore, "write_state", 5)
    with pytest.raises(Broken):
        desk.workbench.restore(desk.task.id, taken.id)
    assert len(asked) == 2
    after = on_disk(desk.root)
    assert "d/y" not in after, "made by the restore"
    assert after["link"] == before["link"]
    assert after["f"] != before["f"], "void: the restore had not come so far"


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("step", STEPS)
def test_p03_a_fork_that_breaks_at_any_step_leaves_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, step: str, nth: int
) -> None:
    change_all_kinds(desk)
    refs, worktrees = desk.refs(), set(desk.root.parent.iterdir())
    before = on_disk(desk.root)
    with monkeypatch.context() as patched:
        calls = breaking(patched, *STEPS[step], nth)
        try:
            desk.workbench.fork_task(desk.task.id)
        except Broken:
            assert desk.refs() == refs
            assert set(desk.root.parent.iterdir()) == worktrees
            assert desk.workbench.tasks() == (desk.task,)
        else:
            assert len(calls) < nth, "the step broke and nobody noticed"
    assert on_disk(desk.root) == before


KILLED = """
import os, signal, sys
from pathlib import Path
from sandbox.files.tree import WorktreeFiles
from sandbox.workbench import Workbench
home, task, snapshot, nth = sys.argv[1:]
calls, real = [], WorktreeFiles._publish
def publish(*args, **kwargs):
    calls.append(1)
    if len(calls) == int(nth):
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **kwargs)
WorktreeFiles._publish = publish
Workbench(Path(home), environ=os.environ, allow_file=True).restore(task, snapshot)
"""


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_p03_a_restore_killed_at_any_file_loses_nothing(desk: Desk, nth: int) -> None:
    taken = desk.workbench.snapshot(desk.task.id, "wanted")
    change_all_kinds(desk)
    before = on_disk(desk.root)
    argv = [sys.executable, "-c", KILLED, str(desk.home), desk.task.id, taken.id, str(nth)]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    assert subprocess.run(argv, check=False, env=environ, timeout=60).returncode == -signal.SIGKILL
    kept = desk.workbench.snapshots(desk.task.id)[-1]
    assert kept.label == "before a restore"
    desk.workbench.restore(desk.task.id, kept.id)  # the kernel has freed the lock
    assert on_disk(desk.root) == before
    desk.workbench.restore(desk.task.id, taken.id)
    assert desk.workbench.snapshot(desk.task.id).tree == taken.tree


# --- fork


def test_a_fork_goes_on_from_the_working_state_on_a_branch_of_its_own(desk: Desk) -> None:
    desk.write("f", b"2\n")
    desk.workbench.commit(desk.task.id, "first")
    change_all_kinds(desk)
    parent = desk.workbench.task(desk.task.id)
    forked = desk.workbench.fork_task(parent.id, prompt="Another way")
    assert (forked.forked_from, forked.base_commit, forked.head_commit, forked.base_branch, forked.prompt) == (
        parent.id, parent.base_commit, parent.head_commit, parent.base_branch, "Another way",
    )  # fmt: skip
    assert forked.branch != parent.branch
    tracked = {k: v for k, v in on_disk(desk.root).items() if k != "noise.log"}
    assert on_disk(desk.worktree(forked)) == tracked
    assert desk.workbench.status(forked.id).changes == desk.workbench.status(parent.id).changes
    (desk.worktree(forked) / "f").write_bytes(b"only here")
    desk.workbench.commit(forked.id, "in the fork")
    assert desk.workbench.task(parent.id) == parent
    assert (desk.root / "f").read_bytes() == b"changed\n"
    assert snapshot_refs(desk) == []


def test_a_fork_of_a_snapshot_starts_at_the_head_it_was_taken_on(desk: Desk) -> None:
    desk.write("f", b"2\n")
    taken = desk.workbench.snapshot(desk.task.id)
    desk.workbench.commit(desk.task.id, "later")
    desk.write("f", b"3\n")
    desk.workbench.close_task(desk.task.id, delete_worktree=True, discard=True)
    forked = desk.workbench.fork_task(desk.task.id, taken.id)
    assert forked.head_commit == desk.task.base_commit
    assert [(c.path, c.kind) for c in desk.workbench.status(forked.id).changes] == [("f", ChangeKind.MODIFIED)]
    assert (desk.worktree(forked) / "f").read_bytes() == b"2\n"
    assert forked.prompt == desk.task.prompt


def test_a_task_starts_from_a_snapshot_of_any_task_of_the_repository(desk: Desk) -> None:
    desk.write("f", b"2\n")
    taken = desk.workbench.snapshot(desk.task.id)
    desk.workbench.close_task(desk.task.id, delete_worktree=True, discard=True)
    made = desk.workbench.create_task(desk.repo_id, "Again", from_snapshot=taken.id)
    assert (made.prompt, made.forked_from, made.base_branch) == ("Again", desk.task.id, desk.task.base_branch)
    assert (desk.worktree(made) / "f").read_bytes() == b"2\n"
    assert [(e.operation, taken.id in e.names) for e in desk.workbench.log(made.id)] == [("create", True)]


def test_snapshots_of_a_closed_task_are_forgotten_when_it_is_named(desk: Desk) -> None:
    """Control: those of an open task are not."""
    desk.write("f", b"2\n")
    desk.workbench.snapshot(desk.task.id)
    desk.write("f", b"3\n")
    desk.workbench.snapshot(desk.task.id)
    with refused(ErrorCode.NOT_FOUND):
        desk.workbench.forget_kept([desk.task.id])
    desk.workbench.close_task(desk.task.id, delete_worktree=True, discard=True)
    assert len(snapshot_refs(desk)) == 2, "a snapshot is work: closing does not delete it"
    assert len(desk.workbench.forget_kept([desk.task.id]).leftovers) == 2
    assert snapshot_refs(desk) == []


@pytest.mark.parametrize("names", [1, 2])
def test_a_snapshot_that_is_forgotten_is_on_no_other_ref(desk: Desk, names: int) -> None:
    """After a restore, `latest` leads to it, too. Control: it stays if another one is forgotten."""
    desk.write("f", b"secret\n")
    first = desk.workbench.snapshot(desk.task.id)
    desk.write("f", b"2\n")
    other = desk.workbench.snapshot(desk.task.id)
    desk.workbench.restore(desk.task.id, first.id)
    desk.workbench.clean_task(desk.task.id)
    desk.workbench.close_task(desk.task.id)
    place = f"refs/sandbox/{desk.task.id}"
    desk.workbench.forget_kept([f"{place}/snapshots/{other.id}"])
    assert f"{place}/latest {first.commit}" in desk.refs()
    left = desk.workbench.forget_kept([f"{place}/snapshots/{first.id}", f"{place}/latest"][:names]).leftovers
    assert [one.action for one in left] == ["removed"]
    assert not desk.git("for-each-ref", "--contains", first.commit)


def test_a_task_starts_from_no_snapshot_of_another_repository_and_from_one_thing_only(
    desk: Desk, tmp_path: Path
) -> None:
    """Control: the test above."""
    taken = desk.workbench.snapshot(desk.task.id)
    other = initialised(tmp_path / "other")
    other.write("f", b"1\n")
    other.commit()
    elsewhere = desk.workbench.clone(str(other.root)).repository.id
    before = desk.workbench.tasks()
    for name in (taken.id, "*", "snap-*", taken.commit, f"../{desk.task.id}/snapshots/{taken.id}"):
        with refused(ErrorCode.NOT_FOUND):
            desk.workbench.create_task(elsewhere, from_snapshot=name)
    with refused(ErrorCode.INVALID_INPUT):
        desk.workbench.create_task(desk.repo_id, base_branch="main", from_snapshot=taken.id)
    assert desk.workbench.tasks() == before


# --- any state, any changes

NAMES = ["f", "run", "link", "d/y", "d/e/x", "d/e", "new", "n/a/m", "n/a", "\u00fc b"]


def scramble(root: Path, rng: random.Random) -> None:
    """Random work of a guest: write, remove, link, change modes, swap files and folders."""
    for _ in range(rng.randint(1, 8)):
        path = root / rng.choice(NAMES)
        if path.is_symlink() or path.is_file():
            path.unlink()
        parents = [p for p in path.parents if p != root and root in p.parents]
        if path.is_dir() or any(p.is_symlink() or p.is_file() for p in parents):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = rng.choice(["file", "run", "link", "gone", "binary"])
        if kind == "link":
            path.symlink_to(rng.choice(["f", "d", "nowhere"]) if path.parent == root else "../f")
        elif kind != "gone":
            path.write_bytes(BINARY if kind == "binary" else rng.choice([b"", b"a\n", b"b\n"]))
            path.chmod(0o755 if kind == "run" else 0o644)


@settings(max_examples=25)
@given(seed=st.integers(min_value=0, max_value=10**6))
def test_a_restored_state_is_the_snapshot_in_tree_and_on_disk(shared: Desk, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - names and bytes
    workbench, task = shared.workbench, shared.task.id
    scramble(shared.root, rng)
    wanted, taken = on_disk(shared.root), workbench.snapshot(task)
    scramble(shared.root, rng)
    other = on_disk(shared.root)
    restored = workbench.restore(task, taken.id)
    assert on_disk(shared.root) == wanted
    assert restored.rejected == ()
    assert workbench.snapshot(task).tree == taken.tree
    workbench.restore(task, restored.previous.id)
    assert on_disk(shared.root) == other


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """One task for all examples."""
    folder = tmp_path_factory.mktemp("shared")
    desk = Desk(initialised(folder / "upstream"), folder / "sandbox-home")
    with desk.workbench:
        yield desk


def test_links_written_by_us_belong_where_they_are_put(tmp_path: Path) -> None:
    """`write_link` refuses a folder and a parent that is a link; nothing is followed."""
    (tmp_path / "root" / "folder").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "root" / "away").symlink_to(tmp_path / "elsewhere")
    with WorktreeFiles(tmp_path / "root") as files:
        files.write_link(RepoPath("a/b"), b"../folder", owner=None)
        for path in ("folder", "away/x"):
            with refused(ErrorCode.UNSAFE_PATH):
                files.write_link(RepoPath(path), b"x", owner=None)
    assert (tmp_path / "root" / "a" / "b").readlink() == Path("../folder")
    assert list((tmp_path / "elsewhere").iterdir()) == []
