"""Readable names of branches: each belongs to one task, in its old form and in its new one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.git.process import Git
from sandbox.store.home import Home
from sandbox.workbench.reconciling import leftover_refs
from sandbox.workbench.tasks import branch_names
from sandbox.workbench.tasks.branch_names import is_branch_of, name_branch, read_owner
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk

TASK = "task-45c2abc0-0000-4000-8000-000000000000"
BRANCHES = "refs/heads/space-agent"


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "home")
    with desk.workbench:
        yield desk


def test_a_new_branch_has_the_short_id_and_words_of_the_prompt() -> None:
    assert name_branch(TASK, "Lower the name!") == "space-agent/45c2abc0-lower-the-name"
    assert name_branch(TASK, "") == "space-agent/45c2abc0-work"
    for chosen in ("fix-login", "space-agent/fix-login"):
        assert name_branch(TASK, "Lower the name!", chosen) == "space-agent/45c2abc0-fix-login"


@pytest.mark.parametrize(
    "chosen", ["", "Fix", "a/b", "-a", "a-", "a--b", "a..b", "a\n", "a" * 81, "refs/heads/main", "space-agent/x/y"]
)
def test_words_of_a_branch_that_a_ref_or_its_owner_would_not_have_are_refused(chosen: str) -> None:
    with refused(ErrorCode.INVALID_INPUT) as raised:
        name_branch(TASK, "p", chosen)
    assert "space-agent/ID-WORDS" in raised.value.hint


@pytest.mark.parametrize(
    ("branch", "ours"),
    [
        ("space-agent/45c2abc0-x", True),
        (f"space-agent/{TASK}-x", True),
        ("space-agent/45c2abc0", False),
        ("space-agent/45c2abc-x", False),
        ("space-agent/45c2abc1-x", False),
        ("space-agent/45c2abc0-X", False),
        ("space-agent/45c2abc0-x/y", False),
        ("space-agent/45c2abc0-x\n", False),
        ("main", False),
    ],
)
def test_only_the_two_forms_are_a_tasks_own(branch: str, ours: bool) -> None:
    assert is_branch_of(TASK, branch) is ours


@pytest.mark.parametrize(
    ("ref", "owner"),
    [
        (f"{BRANCHES}/{TASK}-x", TASK),
        (f"{BRANCHES}/45c2abc0-x", "task-45c2abc0"),
        (f"{BRANCHES}/45c2abc0", None),
        (f"{BRANCHES}/mine", None),
        ("refs/heads/45c2abc0-x", None),
    ],
)
def test_the_owner_is_read_from_either_form(ref: str, owner: str | None) -> None:
    assert read_owner(ref) == owner


def test_ids_whose_beginning_is_taken_are_not_drawn(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a task, or by a branch that a lost task left."""
    taken, lost, free = (uuid.UUID(f"{short}-0000-4000-8000-000000000001") for short in ("45c2abc0", "b" * 8, "c" * 8))
    (Home(desk.home).repositories / "tasks" / f"task-{str(taken)[:-1]}9.json").write_text("{}")
    desk.git("update-ref", f"{BRANCHES}/{'b' * 8}-left", desk.task.head_commit)
    drawn = iter([taken, lost, free])
    monkeypatch.setattr(uuid, "uuid4", lambda: next(drawn))
    assert desk.workbench.create_task(desk.repo_id, "x").id == f"task-{free}"


def test_gc_removes_a_short_branch_of_no_task_and_leaves_those_that_have_one(desk: Desk) -> None:
    """Also a task of an earlier version, and a branch that two tasks could own."""
    head = desk.task.head_commit
    old = f"space-agent/{desk.task.id}-old-form"
    desk.git("branch", "-m", desk.task.branch, old)
    home = Home(desk.home)
    record = home.task(desk.task.id)
    record.write_text(record.read_text().replace(desk.task.branch, old))
    kept = [f"{BRANCHES}/{desk.task.id[5:13]}-another", f"{BRANCHES}/mine"]
    for n in range(2):
        home.creation_mark(f"task-dddddddd-0000-4000-8000-00000000000{n}").touch()
    kept.append(f"{BRANCHES}/{'d' * 8}-x")
    for ref in (*kept, f"{BRANCHES}/eeeeeeee-x"):
        desk.git("update-ref", ref, head)
    done = [(left.kind, left.name) for left in desk.workbench.collect().leftovers if left.kind == "branch"]
    assert done == [("branch", f"{BRANCHES}/eeeeeeee-x")]
    assert {line.split()[0] for line in desk.refs()} >= {*kept, f"refs/heads/{old}"}


def test_a_short_branch_with_commits_of_its_own_is_kept_by_gc(desk: Desk) -> None:
    desk.write("f", b"changed\n")
    commit = desk.workbench.commit(desk.task.id, "m").commit
    desk.git("update-ref", f"{BRANCHES}/eeeeeeee-x", commit)
    desk.git("update-ref", "-d", f"refs/heads/{desk.task.branch}")
    desk.workbench.collect()
    assert f"{BRANCHES}/eeeeeeee-x {commit}" in desk.refs()


def test_work_on_a_short_branch_counts_as_its_tasks(desk: Desk) -> None:
    """Control: another task that is closed loses its branch."""
    other = desk.workbench.create_task(desk.repo_id, "other")
    desk.write("f", b"changed\n")
    desk.workbench.commit(desk.task.id, "m")
    for task in (desk.task, other):
        desk.workbench.close_task(task.id, delete_worktree=True)
    branches = [line.split()[0] for line in desk.refs() if line.startswith(BRANCHES)]
    assert branches == [f"refs/heads/{desk.task.branch}"]
    assert [desk.workbench.find_local_branch(task.id) for task in (desk.task, other)] == [desk.task.branch, None]


def test_tasks_are_listed_once_however_many_branches_there_are(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each listing takes time for each task: looked for by each branch, 1,000 tasks took 14 s of every `gc`."""
    home, listed = Home(desk.home), list[str]()
    ids = [f"task-{number:08x}-0000-4000-8000-000000000000" for number in range(20)]
    for task_id in ids:
        home.task(task_id).touch()
    index = branch_names.index_ids(home, desk.repo_id)
    for beginning in (ids[0], ids[0][:13], desk.task.id[:13], "task-ffffffff"):
        assert branch_names.select_ids(index, beginning) == branch_names.find_ids(home, desk.repo_id, beginning)
    stems = branch_names._stems

    def list_stems(folder: Path, pattern: str) -> list[str]:
        listed.append(pattern)
        return stems(folder, pattern)

    monkeypatch.setattr(branch_names, "_stems", list_stems)
    tips = {f"{branch_names.PREFIX}{task_id[5:13]}-work": "0" * 40 for task_id in ids}
    git, policies = Git(desk.home), desk.workbench._services.policies
    assert list(leftover_refs._find_orphans(home, policies, desk.repo_id, git, tips)) == []
    assert len(listed) == 4
