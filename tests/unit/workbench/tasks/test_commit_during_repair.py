"""An agent goes on while the cache clone is repaired: nothing that it was told is stored is lost. Ids: THREATS S232."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import ErrorCode
from sandbox.git import clone_lock, refs, set_aside
from sandbox.git.process import Git
from sandbox.workbench.delivery import push
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield desk


def clone_of(desk: Desk) -> Path:
    return desk.home / "repositories" / "clones" / desk.repo_id


def repair_with(desk: Desk, monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> Any:
    """Repair the clone; `act` runs in another thread, when the refs of tasks have been copied. Returns what it does."""
    (clone_of(desk) / "refs/remotes/origin").mkdir(parents=True, exist_ok=True)
    (clone_of(desk) / "refs/remotes/origin/new").write_bytes(b"")  # what a power failure may leave
    desk.upstream.commit("new on the remote")
    copy, lock, waits = set_aside.copy_own_refs, clone_lock._try_lock, threading.Event()
    answers = []

    def try_lock(*of: Any) -> bool:
        is_locked = lock(*of)
        if not is_locked:
            waits.set()
        return is_locked

    def copy_refs(*of: Any) -> list[str]:
        failed = copy(*of)
        answers.append(threads.submit(act))
        answers[0].add_done_callback(lambda _: waits.set())
        assert waits.wait(60)
        return failed

    monkeypatch.setattr(clone_lock, "_try_lock", try_lock)
    monkeypatch.setattr(set_aside, "copy_own_refs", copy_refs)
    with ThreadPoolExecutor(1) as threads:
        desk.workbench.clone(str(desk.upstream.root))
        monkeypatch.undo()
        return answers[0].exception(60) or answers[0].result()


def test_a_commit_that_is_made_during_a_repair_is_not_lost(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits, and is then refused: what it has read is the old clone. Repeated, it is there."""
    desk.write("f", b"work during the repair\n")
    error = repair_with(desk, monkeypatch, lambda: desk.workbench.commit(desk.task.id, "during"))
    assert getattr(error, "code", error) is ErrorCode.CONFLICT
    assert "Repeat" in error.hint
    assert set_aside.list_set_aside(clone_of(desk)), "the control: a new clone was made"
    commit = desk.workbench.commit(desk.task.id, "during").commit
    assert desk.workbench.status(desk.task.id).head_commit == commit


def test_a_snapshot_too(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.write("f", b"work during the repair\n")
    error = repair_with(desk, monkeypatch, lambda: desk.workbench.snapshot(desk.task.id, "kept"))
    assert getattr(error, "code", error) is ErrorCode.CONFLICT
    kept = desk.workbench.snapshot(desk.task.id, "kept").id
    assert [snapshot.id for snapshot in desk.workbench.snapshots(desk.task.id)] == [kept]


def test_a_ref_that_is_deleted_during_a_repair_does_not_come_back(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion waits, and then is one in the new clone."""
    other = desk.workbench.create_task(desk.repo_id)
    repair_with(desk, monkeypatch, lambda: desk.workbench.close_task(other.id, delete_worktree=True))
    kept = [line for line in desk.refs() if "space-agent" in line]
    assert desk.task.branch in kept[0]
    assert len(kept) == 1


def test_who_waits_too_long_is_told_to_repeat(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clone_lock, "WAIT_S", 0.1)
    desk.write("f", b"two\n")
    with clone_lock.hold_for_replacement(clone_of(desk)), refused(ErrorCode.CONFLICT) as caught:
        desk.workbench.commit(desk.task.id, "during")
    assert "again" in caught.value.hint
    desk.workbench.commit(desk.task.id, "after")


def test_a_repair_waits_for_what_is_being_stored(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clone_lock, "WAIT_S", 0.1)
    with clone_lock.hold_clone(clone_of(desk)):
        with refused(ErrorCode.CONFLICT), clone_lock.hold_for_replacement(clone_of(desk)):
            pass
        with clone_lock.hold_clone(clone_of(desk)):  # writers do not exclude each other, nor one that holds it already
            pass


@pytest.mark.parametrize("step", ["push_commit", "move_ref", "delete_ref"])
def test_a_push_that_arrived_is_reported_though_its_notes_cannot_be_stored(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A repair that lasts longer than the wait begins after this step. The next push knows what arrived."""
    workbench, task_id = desk.workbench, desk.task.id
    desk.write("f", b"1\n")
    workbench.commit(task_id, "one")
    act, pushed = getattr(push, step), None
    with ExitStack() as repair, monkeypatch.context() as patched:
        patched.setattr(clone_lock, "WAIT_S", 0.2)

        def act_and_lock(*of: Any) -> Any:
            done = act(*of)
            if step != "move_ref" or "/pushed" in of[1]:
                repair.enter_context(clone_lock.hold_for_replacement(clone_of(desk)))
            return done

        patched.setattr(push, step, act_and_lock)
        pushed = workbench.push(task_id)
    assert desk.upstream.oid(desk.task.branch) == pushed.commit
    assert workbench.task(task_id).pushed_at is not None
    desk.write("f", b"2\n")
    workbench.commit(task_id, "two")
    assert not workbench.push(task_id).forced
    assert not [ref for ref in desk.refs() if ref.split()[0].endswith("/pushing")]


def test_a_ref_that_cannot_be_dropped_hides_no_other_error(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clone_lock, "WAIT_S", 0.2)
    with clone_lock.hold_for_replacement(clone_of(desk)):
        refs.drop_ref(Git(clone_of(desk)), f"refs/heads/{desk.task.branch}")
    assert [ref for ref in desk.refs() if ref.startswith(f"refs/heads/{desk.task.branch} ")]
