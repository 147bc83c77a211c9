"""Pristine checkouts: shared, never changed by what lies above them, and collected when nobody needs them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.requirement import unavailable
from sandbox.errors import ErrorCode
from sandbox.files.mount_points import unmount_below
from sandbox.files.overlay_mounts import find_overlay_obstacle, is_mount_point, unmount_overlay
from sandbox.workbench import Workbench
from sandbox.workbench.controller.services import build_services
from sandbox.workbench.repositories.repository_settings import AddedFiles
from sandbox.workbench.tasks.worktrees import clean_room, collect_unused_checkouts, ensure_task_mounted, locate_worktree
from tests.unit.conftest import Upstream, refused


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    if reason := find_overlay_obstacle(tmp_path):
        unavailable(f"no overlay mounts here: {reason}")
    yield tmp_path / "home"
    unmount_below(tmp_path)


@pytest.fixture
def workbench(home: Path) -> Workbench:
    return Workbench(home, environ={"PATH": os.environ["PATH"]}, allow_file=True)


@pytest.fixture
def repo_id(workbench: Workbench, upstream: Upstream) -> str:
    upstream.write("f", b"one\n")
    upstream.write("d/x", b"x\n")
    upstream.commit()
    return workbench.clone(str(upstream.root)).repository.id


def pristines(home: Path) -> list[Path]:
    return sorted(p for p in (home / "repositories" / "pristine").glob("*/*/"))


def contents(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    found = [p for p in folder.rglob("*") if p.is_file()]
    return {str(p.relative_to(folder)): (p.read_bytes(), p.stat().st_mode, p.stat().st_ino) for p in found}


def test_tasks_share_one_checkout_and_see_nothing_of_each_other(workbench: Workbench, repo_id: str, home: Path) -> None:
    one, two = workbench.create_task(repo_id), workbench.create_task(repo_id)
    assert one.worktree_path is not None
    assert two.worktree_path is not None
    (shared,) = pristines(home)
    before = contents(shared)
    (one.worktree_path / "f").write_bytes(b"changed by one\n")
    (one.worktree_path / "d" / "x").unlink()
    (one.worktree_path / "new").write_bytes(b"x")
    with (one.worktree_path / "f").open("ab") as stream:
        stream.write(b"more")
    assert contents(shared) == before
    assert (two.worktree_path / "f").read_bytes() == b"one\n"
    assert [c.path for c in workbench.status(one.id).changes] == ["d/x", "f", "new"]
    assert workbench.status(two.id).changes == ()


def test_a_task_whose_mount_is_gone_is_mounted_again_when_it_is_used(
    workbench: Workbench, repo_id: str, home: Path
) -> None:
    """As after a reboot."""
    task = workbench.create_task(repo_id)
    assert task.worktree_path is not None
    (task.worktree_path / "f").write_bytes(b"changed\n")
    unmount_overlay(task.worktree_path)
    assert list(task.worktree_path.iterdir()) == []
    assert workbench.read_file(task.id, "f").content == "changed\n"
    unmount_overlay(task.worktree_path)
    assert [c.path for c in workbench.status(task.id).changes] == ["f"]
    assert is_mount_point(task.worktree_path)


def test_closing_unmounts_and_keeps_what_changed(workbench: Workbench, repo_id: str) -> None:
    task = workbench.create_task(repo_id)
    assert task.worktree_path is not None
    (task.worktree_path / "f").write_bytes(b"changed\n")
    workbench.close_task(task.id)
    assert not is_mount_point(task.worktree_path)
    assert [c.path for c in workbench.status(task.id).changes] == ["f"]
    assert "+changed" in workbench.diff(task.id).text
    assert not is_mount_point(task.worktree_path)
    with refused(ErrorCode.DIRTY_WORKSPACE):
        workbench.close_task(task.id, delete_worktree=True)


def test_a_checkout_below_a_worktree_stays_and_goes_some_time_after_the_last_one(
    workbench: Workbench, repo_id: str, home: Path
) -> None:
    one, two = workbench.create_task(repo_id), workbench.create_task(repo_id)
    (shared,) = pristines(home)
    old = time.time() - 30 * 86_400
    os.utime(shared, (old, old))
    workbench.close_task(one.id, delete_worktree=True)
    assert pristines(home) == [shared]
    os.utime(shared)
    workbench.close_task(two.id, delete_worktree=True)
    assert pristines(home) == [shared], "it was asked for a moment ago"
    three = workbench.create_task(repo_id)
    os.utime(shared, (old, old))
    workbench.close_task(three.id, delete_worktree=True)
    assert pristines(home) == []
    assert workbench.status(workbench.create_task(repo_id).id).changes == ()


def test_nothing_is_collected_while_it_cannot_be_told_what_lies_above(
    workbench: Workbench, repo_id: str, home: Path
) -> None:
    one, two = workbench.create_task(repo_id), workbench.create_task(repo_id)
    (shared,) = pristines(home)
    (home / "repositories" / "layers" / repo_id / one.id / "base").write_text("damaged")
    workbench.close_task(two.id, delete_worktree=True)
    os.utime(shared, (0, 0))
    three = workbench.create_task(repo_id)
    os.utime(shared, (0, 0))
    workbench.close_task(three.id, delete_worktree=True)
    assert pristines(home) == [shared]
    closed = workbench.close_task(one.id, delete_worktree=True, discard=True)
    assert closed.worktree_path is None


def test_a_checkout_below_a_clean_room_stays_although_its_task_is_gone(
    workbench: Workbench, repo_id: str, home: Path
) -> None:
    """Control: it goes as soon as the room is gone, so nothing else kept it."""
    task = workbench.create_task(repo_id)
    (shared,) = pristines(home)
    services = build_services(home, {"PATH": os.environ["PATH"]}, allow_file=True)
    _, git = services.repositories.open(repo_id)
    with clean_room(services, repo_id, git, (shared.name, shared.name), AddedFiles()) as room:
        workbench.close_task(task.id, delete_worktree=True)
        os.utime(shared, (0, 0))
        assert collect_unused_checkouts(services.home, services.settings, repo_id) == []
        assert (room.root / "d" / "x").read_bytes() == b"x\n"
    os.utime(shared, (0, 0))
    assert collect_unused_checkouts(services.home, services.settings, repo_id) == [shared.name]


def test_whoever_looked_before_a_task_was_closed_does_not_mount_it_again(
    workbench: Workbench, repo_id: str, home: Path
) -> None:
    """He read the record when it still said working. Control: mounting itself works."""
    task = workbench.create_task(repo_id)
    services = build_services(home, {"PATH": os.environ["PATH"]}, allow_file=True)
    site = locate_worktree(services.home, services.policies, repo_id, task.id)
    unmount_overlay(site.root)
    assert is_mount_point(ensure_task_mounted(services.home, services.policies, task)), "void"
    workbench.close_task(task.id)
    ensure_task_mounted(services.home, services.policies, task)
    assert not is_mount_point(site.root)
    workbench.close_task(task.id, delete_worktree=True)
    with refused(ErrorCode.NOT_FOUND):
        ensure_task_mounted(services.home, services.policies, task)
    assert not site.root.exists()


def test_removing_the_repository_takes_mounts_layers_and_checkouts(
    workbench: Workbench, repo_id: str, home: Path
) -> None:
    task = workbench.create_task(repo_id)
    orphan = workbench.create_task(repo_id)
    assert task.worktree_path is not None
    workbench.close_task(task.id)
    (home / "repositories" / "tasks" / f"{orphan.id}.json").unlink()
    workbench.remove_repository(repo_id, discard=True)
    assert not task.worktree_path.exists()
    assert pristines(home) == []
    assert str(home) not in Path("/proc/self/mountinfo").read_text()
    assert list((home / "repositories" / "layers").iterdir()) == []
