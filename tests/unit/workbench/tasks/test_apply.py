"""Apply: a person's checkout gets all of a task's result or none of it, and never loses a change of the person."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import ErrorCode
from sandbox.models import ApplyResult, ChangeKind
from sandbox.workspaces import person_directory, restore
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk, change_each_kind, on_disk


class Checkout:
    """A desk, and a person's checkout of the task's base."""

    def __init__(self, desk: Desk, root: Path) -> None:
        self.desk, self.root = desk, root
        shutil.copytree(desk.upstream.root, root, symlinks=True)

    def apply(self, *, uncommitted: bool = False, dry_run: bool = False) -> ApplyResult:
        return self.desk.workbench.apply_task(self.desk.task.id, self.root, uncommitted=uncommitted, dry_run=dry_run)

    def git(self, *args: str) -> str:
        return Upstream(self.root).git(*args).decode()


@pytest.fixture
def person(upstream: Upstream, tmp_path: Path) -> Iterator[Checkout]:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield Checkout(desk, tmp_path / "mine")


def change_all_kinds(desk: Desk) -> None:
    change_each_kind(desk)
    desk.write("new/deep/file", b"new\n", executable=True)


def test_the_commit_of_a_task_is_written_into_a_checkout(person: Checkout) -> None:
    desk = person.desk
    change_all_kinds(desk)
    commit = desk.workbench.commit(desk.task.id, "all kinds").commit
    desk.write("f", b"not committed\n")
    before = on_disk(person.root)
    planned = person.apply(dry_run=True)
    assert on_disk(person.root) == before
    done = person.apply()
    assert (done.commit, done.uncommitted, done.files) == (commit, 1, planned.files)
    assert {file.path: file.kind for file in done.files} == {
        "f": ChangeKind.MODIFIED,
        "run": ChangeKind.MODIFIED,
        "d/y": ChangeKind.DELETED,
        "link": ChangeKind.TYPE_CHANGED,
        "new/deep/file": ChangeKind.ADDED,
    }
    person.git("add", "-A")
    assert person.git("write-tree").strip() == done.tree
    assert all(file.already for file in person.apply().files)


def test_the_working_state_is_applied_on_request(person: Checkout) -> None:
    person.desk.write("f", b"changed\n")
    with refused(ErrorCode.NOTHING_TO_COMMIT):
        person.apply()
    done = person.apply(uncommitted=True)
    assert (done.commit, [file.path for file in done.files]) == (None, ["f"])
    assert (person.root / "f").read_bytes() == b"changed\n"


def test_a_person_keeps_every_change_and_every_one_in_the_way_is_named(person: Checkout) -> None:
    change_all_kinds(person.desk)
    (person.root / "f").write_bytes(b"the person's\n")
    (person.root / "d" / "y").unlink()
    (person.root / "d" / "y").mkdir()
    (person.root / "new").symlink_to("d")
    (person.root / "aside").write_bytes(b"the person's\n")
    before = on_disk(person.root)
    for dry_run in (True, False):
        with refused(ErrorCode.CONFLICT) as caught:
            person.apply(uncommitted=True, dry_run=dry_run)
        assert caught.value.data == {"paths": ["d/y", "f", "new/deep/file"]}
    assert on_disk(person.root) == before


def test_a_change_in_the_last_moment_stops_an_apply_and_the_rest_is_changed_back(
    person: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_all_kinds(person.desk)
    before = on_disk(person.root)
    write, calls = restore.write_state, iter(range(100))

    def write_and_edit(*args: Any) -> None:
        if next(calls) == 2:
            (person.root / "new").write_bytes(b"just now\n")
        write(*args)

    monkeypatch.setattr(person_directory, "write_state", write_and_edit)
    with refused(ErrorCode.CONFLICT):
        person.apply(uncommitted=True)
    assert (person.root / "new").read_bytes() == b"just now\n"
    (person.root / "new").unlink()
    assert on_disk(person.root) == before


def test_new_files_get_what_the_umask_allows_and_the_owner_of_the_directory(person: Checkout) -> None:
    change_all_kinds(person.desk)
    if os.geteuid() == 0:
        os.chown(person.root, 12345, 12345)
    old = os.umask(0o077)
    try:
        person.apply(uncommitted=True)
    finally:
        os.umask(old)
    for name, mode in (("new", 0o40700), ("new/deep/file", 0o100700), ("f", 0o100600)):
        info = (person.root / name).stat()
        assert info.st_mode == mode
        assert info.st_uid == person.root.stat().st_uid


def test_only_the_top_of_a_checkout_is_written(person: Checkout) -> None:
    person.desk.write("f", b"changed\n")
    for place in (person.root / "d", person.root / "absent", person.desk.root):
        with refused(ErrorCode.INVALID_INPUT):
            person.desk.workbench.apply_task(person.desk.task.id, place, uncommitted=True)


def test_the_branch_of_a_task_can_be_fetched_with_plain_git(person: Checkout) -> None:
    desk = person.desk
    desk.write("f", b"changed\n")
    commit = desk.workbench.commit(desk.task.id, "change").commit
    clone = desk.home / "repositories" / "clones" / desk.repo_id
    person.git("fetch", "--quiet", str(clone), f"{desk.task.branch}:from-task")
    assert person.git("rev-parse", "from-task").strip() == commit
