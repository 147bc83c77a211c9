"""A command that is killed on the way: the next one goes on with the state that the killed one meant."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from sandbox.workbench.tasks import snapshots, worktrees
from tests.unit.conftest import Upstream
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
