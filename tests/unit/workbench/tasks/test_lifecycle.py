"""One value carries the facts of a task's base through an operation that compares the task several times."""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from sandbox.checks.execute import CheckDirectories
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import objects
from sandbox.models import Check, CheckRun, Task, TaskOptions, Verdict, WorkspaceKind
from sandbox.store import records
from sandbox.store.home import Home, read_json
from sandbox.workbench import Watch
from sandbox.workbench.checks import run as running
from sandbox.workbench.checks import task_checks
from sandbox.workbench.checks.guest_setup import GuestSetup
from sandbox.workbench.controller.guest_accounts import find_guest_users
from sandbox.workbench.repositories import stored_facts
from sandbox.workbench.tasks import lifecycle
from sandbox.workbench.tasks.only_copies import WorkRef, find_among
from sandbox.workbench.tasks.task_refs import delete_refs
from sandbox.workbench.tasks.worktrees import delete_files
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a file was read as a record or as facts, by the name of its directory."""
    counts: Counter[str] = Counter()

    def count(module: Any) -> None:
        def counted(path: Path) -> Any:
            counts[path.parent.name] += 1
            return read_json(path)

        monkeypatch.setattr(module, read_json.__name__, counted)

    count(records)
    count(stored_facts)
    return counts


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Desk:
    upstream.write("Makefile", b"check:\n\ttrue\ntest:\n\ttrue\n")
    return Desk(upstream, tmp_path / "home")


def test_checks_in_a_task_read_its_record_twice_and_its_facts_once(
    desk: Desk, reads: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the lock, for the profile, and under it. Each check has its own comparison: the first may change files."""
    places: list[CheckDirectories] = []

    def run_one(
        _parts: Any, _recorder: Any, which: tuple[str, Check, CheckDirectories], _watch: Watch, *, owner: str
    ) -> CheckRun:
        assert owner == desk.task.id
        places.append(which[2])
        (which[2].workspace / "built").write_bytes(b"by the check before")
        return CheckRun.model_construct(verdict=Verdict.PASSED)  # type: ignore[call-arg]  # the only field that is read

    services = desk.workbench._services
    ids = [check.id for check in desk.workbench.checks(desk.task.id)]
    assert len(ids) > 1
    monkeypatch.setattr(task_checks, "prepare_setups", lambda *_: {"": GuestSetup("sha256:1", "runc")})
    monkeypatch.setattr(running, running.build_task_recorder.__name__, lambda *_: None)
    monkeypatch.setattr(running, running.run_one.__name__, run_one)
    reads.clear()
    task_checks.run_checks(services, desk.task.id, ids, Watch())

    facts = services.home.facts(desk.repo_id, desk.task.base_commit).parent.name
    assert (reads[services.home.task(desk.task.id).parent.name], reads[facts]) == (2, 1)
    assert {place.workspace for place in places} == {desk.root}
    assert places[0].tree != places[1].tree


def test_a_comparison_with_a_given_base_is_the_same(desk: Desk) -> None:
    services = desk.workbench._services
    desk.write("new", b"text")
    task = desk.workbench.task(desk.task.id)
    base = lifecycle.read_base(services, task)
    with lifecycle.compare_task(services, task) as read, lifecycle.compare_task(services, task, ("new",)) as without:
        pass
    with lifecycle.compare_task(services, task, task_base=base) as given:
        assert (given.changes, given.root) == (read.changes, desk.root)
    with lifecycle.compare_task(services, task, ("new",), base) as given:
        assert given.changes == without.changes
    assert without.changes != read.changes


def test_a_task_is_locked_by_its_id_or_by_its_record(desk: Desk) -> None:
    """Its record is read again under the lock: it may have been closed since."""
    services = desk.workbench._services
    task = desk.workbench.task(desk.task.id)
    with lifecycle.lock_task(services, task) as locked:
        assert locked == task
    with lifecycle.lock_task(services, task.id) as locked:
        assert locked == task
    desk.workbench.close_task(task.id)
    with refused(ErrorCode.CONFLICT), lifecycle.lock_task(services, task):
        pass


def test_a_ref_that_moves_after_it_was_listed_keeps_all_refs_of_the_task(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refs are listed while the engine removes the container. Control: without the move they are deleted."""
    desk.write("f", b"new\n")
    moved = desk.workbench.commit(desk.task.id, "another commit").commit

    def move_ref_then_delete(*arguments: Any) -> None:
        if moving:
            desk.git("update-ref", f"refs/heads/{task.branch}", moved)
        delete_refs(*arguments)

    monkeypatch.setattr(lifecycle, "delete_refs", move_ref_then_delete)
    for moving in (False, True):
        task = desk.workbench.create_task(desk.repo_id)
        desk.git("update-ref", f"refs/sandbox/{task.id}/pushed", task.head_commit)
        desk.workbench.close_task(task.id, delete_worktree=True, discard=True)
        assert len([line for line in desk.refs() if task.branch in line or task.id in line]) == 2 * moving


def test_refs_are_kept_when_the_task_cannot_be_closed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: the next attempt, which writes the record, deletes them."""
    before = [line for line in desk.refs() if desk.task.branch in line]
    with monkeypatch.context() as patched, refused(ErrorCode.QUOTA_EXCEEDED):
        full = SandboxError(ErrorCode.QUOTA_EXCEEDED, "The disk is full")
        patched.setattr(lifecycle, "save_task", Mock(side_effect=full))
        desk.workbench.close_task(desk.task.id, delete_worktree=True, discard=True)
    assert [line for line in desk.refs() if desk.task.branch in line] == before != []
    desk.workbench.close_task(desk.task.id, delete_worktree=True, discard=True)
    assert [line for line in desk.refs() if desk.task.branch in line] == []


def test_git_waits_with_its_memory_for_no_deletion_of_files(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostile tree takes minutes, and eight such tasks would leave no memory for any other git."""
    steps: list[str] = []
    begins = threading.Event()

    def note_then_delete(*arguments: Any) -> None:
        steps.append("git starts")
        begins.set()
        delete_refs(*arguments)

    def delete_slowly(site: Any) -> None:
        begins.wait(0.5)
        delete_files(site)
        steps.append("files are gone")

    def save(home: Home, task: Task) -> Task:
        steps.append("saved")
        return records.save_task(home, task)

    monkeypatch.setattr(lifecycle, "delete_refs", note_then_delete)
    monkeypatch.setattr(lifecycle, "delete_files", delete_slowly)
    monkeypatch.setattr(lifecycle, "save_task", save)
    desk.workbench.close_task(desk.task.id, delete_worktree=True, discard=True)
    assert steps == ["files are gone", "saved", "git starts"]
    assert [line for line in desk.refs() if desk.task.branch in line] == []


def test_a_branch_that_a_ref_of_the_remote_has_is_known_without_git() -> None:
    """Control: of another commit, git reads the history."""
    git = Mock()
    git.run.return_value = b""
    remote = WorkRef("refs/remotes/origin/main", "a" * 40, "b" * 40, "")
    for oid, asked in (("a" * 40, 0), ("c" * 40, 1)):
        branch = WorkRef("refs/heads/space-agent/12345678-work", oid, "b" * 40, "")
        assert list(find_among(git, [branch, remote], ())) == []
        assert git.run.call_count == asked


@pytest.mark.parametrize("kind", [WorkspaceKind.WORKTREE, WorkspaceKind.TREE])
def test_a_task_without_a_branch_of_its_own_leaves_no_mark_and_no_user(desk: Desk, kind: WorkspaceKind) -> None:
    """The branch is there, and of another: it stays. Control: under another name the task is created."""
    with desk.workbench as bench:
        services = bench._services
        git = services.repositories.open(desk.task.repo_id)[1]
        branch = "space-agent/45c2abc0-work"
        task_id = "task-45c2abc0-0000-4000-8000-000000000000"
        options = TaskOptions(workspace_kind=kind)
        start = (desk.task.head_commit, desk.task.base_branch)
        task = lifecycle.draft_task(services, desk.task.repo_id, task_id, "work", start, options)
        task = task.model_copy(update={"branch": branch})
        git.run("update-ref", f"refs/heads/{branch}", task.head_commit)
        users = find_guest_users(services)
        before = users.list_leases()
        tree = objects.tree_of(git, task.head_commit)
        with refused(ErrorCode.CONFLICT):
            lifecycle.start_task(services, git, task, tree, None)
        assert f"refs/heads/{branch} {task.head_commit}" in desk.refs()
        assert not services.home.creation_mark(task_id).exists()
        assert users.list_leases() == before
        lifecycle.start_task(services, git, task.model_copy(update={"branch": f"{branch}-2"}), tree, None)
        assert len(users.list_leases()) - len(before) == (kind is WorkspaceKind.WORKTREE and os.geteuid() == 0)
