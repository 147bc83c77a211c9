"""THREATS O10: a push that a rule allows by its diff, made to look as if it touched nothing risky.

The operator's rule asks about CI files. The control of each trick: without it, or as plain paths name it, the same
push would need no person.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.models import Risk, Task
from sandbox.policy.approvals import Decision
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream, initialised, scrubbed, surroundings, unused_homes, upstream
from tests.unit.desk import Desk

__all__ = ["scrubbed", "surroundings", "unused_homes", "upstream"]
pytestmark = [pytest.mark.must, pytest.mark.xdist_group("diff-rule")]

CI = ".github/workflows/ci.yml"
RULE = '[when]\nflags = ["ci", "lock", "hooks", "policy"]\nverified = false\n'
PUSH = "space_repo_push"


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    with opened_desk(upstream, tmp_path / "home") as desk:
        yield desk


@pytest.fixture(scope="module")
def shared_desk(scrubbed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """For tests that work in a task of their own and change nothing else."""
    folder = tmp_path_factory.mktemp("shared")
    with opened_desk(initialised(folder / "upstream"), folder / "home") as desk:
        yield desk


@contextmanager
def opened_desk(upstream: Upstream, home: Path) -> Iterator[Desk]:
    """The upstream has CI that includes a file of its own, and a link to a folder."""
    (home / "policies").mkdir(parents=True)
    (home / "policies" / "approvals.toml").write_text(RULE)
    upstream.write(CI, b"on: push\n" * 20)
    upstream.write("parts/jobs/test.yml", b"test: make\n")
    (upstream.root / ".circleci").symlink_to("parts/jobs")
    upstream.commit()
    desk = Desk(upstream, home)
    with desk.workbench:
        yield desk


def is_allowed(desk: Desk, task: Task | None = None) -> bool:
    call = desk.workbench.approval_call(PUSH, {"task_id": (task or desk.task).id})
    return desk.workbench.is_allowed_by_diff(call)


def reasons(desk: Desk, task: Task | None = None) -> list[str]:
    call = desk.workbench.approval_call(PUSH, {"task_id": (task or desk.task).id})
    return [line for line in desk.workbench.request_approval(call).question if line.startswith("asked because")]


def commit(desk: Desk, message: str = "m") -> None:
    desk.workbench.commit(desk.task.id, message)


def rename(root: Path) -> None:
    (root / CI).rename(root / "moved.yml")


def rename_there(root: Path) -> None:
    (root / "f").rename(root / ".github/workflows/other.yml")


def other_case(root: Path) -> None:
    (root / ".GitHub/WorkFlows").mkdir(parents=True)
    (root / ".GitHub/WorkFlows/ci.yml").write_text("on: push\n")


def ignored_character(root: Path) -> None:
    (root / ".git\u200chub/workflows").mkdir(parents=True)
    (root / ".git\u200chub/workflows/ci.yml").write_text("on: push\n")


def link_in_place(root: Path) -> None:
    (root / CI).unlink()
    (root / CI).symlink_to("../../f")


def link_above(root: Path) -> None:
    (root / ".woodpecker").symlink_to("d")


def link_elsewhere(root: Path) -> None:
    (root / "innocent").symlink_to("f")


def behind_a_link(root: Path) -> None:
    (root / "parts/jobs/test.yml").write_text("test: curl evil\n")


def mode_only(root: Path) -> None:
    (root / CI).chmod(0o755)


def removal(root: Path) -> None:
    (root / CI).unlink()


@pytest.mark.parametrize(
    "trick",
    [rename, rename_there, other_case, ignored_character, link_in_place, link_above, link_elsewhere, behind_a_link,
     mode_only, removal],
    ids=lambda trick: trick.__name__,
)  # fmt: skip
def test_o10_a_trick_does_not_take_ci_past_the_rule(shared_desk: Desk, trick: Callable[[Path], None]) -> None:
    desk, task = shared_desk, shared_desk.workbench.create_task(shared_desk.repo_id, trick.__name__)
    root = desk.worktree(task)
    (root / "f").write_bytes(b"changed\n")
    desk.workbench.commit(task.id, "m")
    assert is_allowed(desk, task), "control: a change of an ordinary file needs no person"
    trick(root)
    desk.workbench.commit(task.id, "trick")
    assert not is_allowed(desk, task)
    assert reasons(desk, task)


def test_o10_ci_in_an_earlier_commit_only_is_seen(desk: Desk) -> None:
    desk.write(CI, b"on: pull_request_target\n")
    commit(desk, "there")
    desk.write(CI, b"on: push\n" * 20)
    commit(desk, "and back")
    assert desk.workbench.diff(desk.task.id).files == (), "control: the difference as a whole is empty"
    assert not is_allowed(desk)


def test_o10_a_strangers_commits_below_the_base_are_seen(desk: Desk) -> None:
    """The base of a task may be a pull request's head, which no branch of the remote has. The question names its files
    as well, for those who have no rule by diff.
    """
    upstream = desk.upstream
    first = upstream.oid("HEAD")
    upstream.write(CI, b"on: pull_request_target\n")
    stranger = upstream.commit()
    upstream.git("reset", "-q", "--hard", first)
    upstream.git("update-ref", "refs/pull/7/head", stranger)
    desk.git("fetch", "-q", str(upstream.root), "refs/pull/7/head:refs/requests/7/head")
    task = desk.workbench.create_task(desk.repo_id, "go on", stranger)
    (desk.worktree(task) / "f").write_bytes(b"changed\n")
    desk.workbench.commit(task.id, "m")
    assert [file.path for file in desk.workbench.diff(task.id).files] == ["f"], "control: as the task sees itself"
    assert not is_allowed(desk, task)
    question = desk.workbench.request_approval(desk.workbench.approval_call(PUSH, {"task_id": task.id})).question
    assert f"RISK: {CI} below the base (ci)" in question


def test_o10_old_ci_of_an_old_commit_is_seen(desk: Desk) -> None:
    """An old commit of the remote may have CI with a hole that was closed since. Control: at the branch's tip."""
    upstream = desk.upstream
    old = upstream.oid("HEAD")
    upstream.write(CI, b"on: push # safe now\n")
    upstream.commit()
    desk.workbench.update_repository(desk.repo_id)
    allowed = []
    for base in (old, None):
        task = desk.workbench.create_task(desk.repo_id, "x", base)
        (desk.worktree(task) / "f").write_bytes(b"changed\n")
        desk.workbench.commit(task.id, "m")
        allowed.append(is_allowed(desk, task))
    assert allowed == [False, True]


def test_o10_what_was_not_judged_is_not_sent(desk: Desk) -> None:
    """The permission names the commit, and a push of another one is a conflict."""
    desk.write("f", b"changed\n")
    commit(desk)
    call = desk.workbench.approval_call(PUSH, {"task_id": desk.task.id})
    desk.write(CI, b"on: pull_request_target\n")
    commit(desk, "after")
    assert not desk.workbench.is_allowed_by_diff(call)


def test_o10_neither_denial_nor_other_tools_are_changed_by_the_rule(desk: Desk) -> None:
    own = desk.home / "policies" / "approvals.toml"
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    for tools, decision in (
        ("", Decision.ASK),
        ('space_repo_push = "allow"', Decision.ASK),
        ('space_repo_push = "deny"', Decision.DENY),
    ):
        own.write_text(f"{RULE}[tools]\n{tools}\n")
        with Workbench(desk.home, environ=environ) as workbench:
            assert workbench.approval_decision(PUSH, Risk.FILESYSTEM_WRITE) is decision
            assert workbench.approval_decision("space_repo_clone", Risk.FILESYSTEM_WRITE) is Decision.ASK
