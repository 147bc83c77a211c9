"""An agent goes on while the cache clone is repaired: nothing that it was told is stored is lost. Ids: THREATS S232."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import ErrorCode
from sandbox.git import clone_lock, refs, set_aside
from sandbox.git.cache_clones import open_cache
from sandbox.git.process import Git
from sandbox.workbench.delivery import push
from sandbox.workbench.repositories import lfs
from sandbox.workbench.tasks import sync
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


def test_a_repair_is_not_starved_by_writers_that_come_and_go(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """There was never a moment without one of them."""
    monkeypatch.setattr(clone_lock, "WAIT_S", 5.0)
    path, is_over, began = clone_of(desk), threading.Event(), threading.Barrier(7)

    def write_on(number: int) -> None:
        for turn in range(10_000):
            with clone_lock.hold_clone(path):
                if not turn:
                    began.wait(60)
                if is_over.wait(0.15 + number / 50):
                    return

    with ThreadPoolExecutor(6) as threads:
        writers = [threads.submit(write_on, number) for number in range(6)]
        began.wait(60)
        try:
            with clone_lock.hold_for_replacement(path):
                is_over.set()
        finally:
            is_over.set()
        assert [writer.result(60) for writer in writers] == [None] * 6


@contextmanager
def waiting_repair(path: Path) -> Iterator[Future[bool]]:
    """A repair that waits for a writer. Its result: whether it got the clone."""

    def repair() -> bool:
        with clone_lock.hold_for_replacement(path):
            return True

    threads = ThreadPoolExecutor(1)
    future = threads.submit(repair)
    threads.shutdown(wait=False)  # it ends after the block, which holds the clone
    fd = os.open(path, os.O_RDONLY)
    try:
        while not clone_lock._is_repair_waiting(fd):
            time.sleep(0.01)
        yield future
    finally:
        os.close(fd)


def test_a_writer_that_a_repair_waits_for_still_moves_refs(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each move holds the clone again. If it let the repair go first, both would wait for ever."""
    monkeypatch.setattr(clone_lock, "WAIT_S", 5.0)
    git, path = open_cache(clone_of(desk)), clone_of(desk)
    with clone_lock.hold_clone(path), waiting_repair(path) as repair:
        began = time.monotonic()
        refs.move_ref(git, "refs/sandbox/test", desk.task.base_commit, "0" * 40)
        assert time.monotonic() - began < 2
        assert not repair.done()
    assert repair.result(60)


def test_one_long_writer_does_not_stop_the_others_with_a_repair(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a thread that works for the long one goes on after a while: no mistake is a deadlock."""
    monkeypatch.setattr(clone_lock, "WAIT_S", 5.0)
    monkeypatch.setattr(clone_lock, "YIELD_S", 0.3)
    path = clone_of(desk)

    def write() -> float:
        began = time.monotonic()
        with clone_lock.hold_clone(path):
            return time.monotonic() - began

    with ThreadPoolExecutor(1) as threads, clone_lock.hold_clone(path), waiting_repair(path) as repair:
        assert 0.3 <= threads.submit(write).result(60) < 3
    assert repair.result(60)


def test_a_clone_that_is_gone_is_not_written_to(desk: Desk) -> None:
    git, path = open_cache(clone_of(desk)), clone_of(desk)
    path.rename(path.with_name("elsewhere"))
    with refused(ErrorCode.NOT_FOUND) as caught, clone_lock.hold_clone(path, git.clone_id):
        pass
    path.with_name("elsewhere").rename(path)
    assert "No data was stored" in caught.value.hint


@pytest.mark.parametrize("act", ["sync", "checkout"])
def test_a_repair_does_not_wait_for_files_of_git_lfs(act: str, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clone_lock, "WAIT_S", 0.2)
    desk.write("mine", b"mine\n")
    if act == "sync":
        desk.workbench.commit(desk.task.id, "mine")
    desk.upstream.commit("theirs")
    desk.workbench.clone(str(desk.upstream.root))
    find, seen = lfs.find_large_files, []

    def find_large_files(*of: Any, **options: Any) -> Any:
        with clone_lock.hold_for_replacement(clone_of(desk)):
            seen.append(of)
        return find(*of, **options)

    monkeypatch.setattr(sync, "find_large_files", find_large_files)
    if act == "sync":
        desk.workbench.sync_task(desk.task.id)
    else:
        desk.workbench.checkout_task(desk.task.id, "main")
    assert seen
    assert (desk.root / "mine").read_bytes() == b"mine\n"


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
