"""THREATS S233: a push sends what is below the task's base, which the remote does not have and no question shows.

The control of each attack: it arrives at the remote, or the same push goes through without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.policy.approvals import DiffRule
from sandbox.store.home import Home
from sandbox.store.records import save_task
from sandbox.workbench.delivery.diff_rule import find_reasons_to_ask
from tests.attack.arena import refused
from tests.unit.conftest import Upstream, scrubbed, surroundings, unused_homes, upstream
from tests.unit.desk import Desk

__all__ = ["scrubbed", "surroundings", "unused_homes", "upstream"]
pytestmark = [pytest.mark.must, pytest.mark.xdist_group("pushed_bases")]

PUSH = "space_repo_push"
CI = ".github/workflows/evil.yml"
SECRET = "ghp_abcdefghijklmnop1234567890"


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "home")
    with desk.workbench:
        yield desk


def begin_at(desk: Desk, commit: str, *, fetch: bool = True) -> str:
    """A task at a commit, with a commit of its own."""
    task = desk.workbench.create_task(desk.repo_id, "docs", commit, fetch=fetch)
    desk.workbench.write_file(task.id, "README", "x\n", None)
    desk.workbench.commit(task.id, "Add README")
    return task.id


def ask(desk: Desk, task_id: str) -> list[str]:
    call = desk.workbench.approval_call(PUSH, {"task_id": task_id})
    return list(desk.workbench.request_approval(call).question)


def log_of(desk: Desk, branch: str) -> str:
    return desk.upstream.git("log", "--format=%B", branch).decode()


def test_s233_messages_and_files_below_the_base_are_shown(desk: Desk) -> None:
    desk.write(CI, b"on: push\n")
    hidden = desk.workbench.commit(desk.task.id, "Hidden subject\n\nwritten by a guest\n").commit
    task = begin_at(desk, hidden)
    question = ask(desk, task)
    sent = desk.workbench.push(task)
    assert "written by a guest" in log_of(desk, sent.branch), "void: it is not sent"
    assert CI.encode() in desk.upstream.git("ls-tree", "-r", "--name-only", sent.branch), "void: it is not sent"
    assert "publishes: 2 commit message(s)" in question
    assert any(line.endswith("| written by a guest") for line in question)
    assert f"  {CI}" in question
    assert any(line.startswith(f"RISK: {CI} below the base (ci") for line in question)


def test_s233_a_question_about_a_base_that_the_remote_has_says_no_more_than_before(desk: Desk) -> None:
    desk.upstream.git("checkout", "-q", "-b", "other")
    desk.upstream.write("g", b"")
    on_branch = desk.upstream.commit()
    question = ask(desk, begin_at(desk, on_branch))
    assert "publishes: 1 commit message(s)" in question
    assert not [line for line in question if "base" in line]


def test_s233_a_secret_in_a_message_below_the_base_is_not_pushed(desk: Desk) -> None:
    path = desk.home / "credentials.toml"
    path.write_text(f'[[credential]]\nhost = "github.com"\nusername = "x"\nsecret = "{SECRET}"\n')
    path.chmod(0o600)
    desk.write("n", b"")
    with_secret = desk.workbench.commit(desk.task.id, f"Note {SECRET}\n").commit
    task = begin_at(desk, with_secret)
    for pushed in (desk.task.id, task):
        with refused(ErrorCode.POLICY_VIOLATION):
            desk.workbench.push(pushed)
    assert desk.workbench.push(begin_at(desk, "main")).commit, "control: without it"


def test_s233_no_task_begins_at_a_snapshot_and_none_is_pushed(desk: Desk) -> None:
    desk.write("f", b"never to be pushed\n")
    snapshot = desk.workbench.snapshot(desk.task.id, "x")
    for name in (snapshot.commit, snapshot.commit[:12]):
        with refused(ErrorCode.INVALID_INPUT):
            desk.workbench.create_task(desk.repo_id, "docs", name)
        with refused(ErrorCode.INVALID_INPUT):
            desk.workbench.checkout_task(desk.task.id, name)
    control = desk.workbench.create_task(desk.repo_id, "docs", "main")
    assert control.base_commit == desk.task.base_commit, "control"
    assert desk.workbench.create_task(desk.repo_id, "docs", from_snapshot=snapshot.id).id, (
        "control: its files are for a task"
    )


@pytest.mark.parametrize("is_kept", [True, False], ids=["kept", "deleted"])
def test_s233_a_task_of_an_earlier_version_pushes_no_snapshot(desk: Desk, is_kept: bool) -> None:
    desk.write("f", b"never to be pushed\n")
    snapshot = desk.workbench.snapshot(desk.task.id, "x")
    task = desk.workbench.task(begin_at(desk, "main"))
    desk.git("update-ref", f"refs/heads/{task.branch}", snapshot.commit)
    if not is_kept:
        desk.git("update-ref", "-d", f"refs/sandbox/{desk.task.id}/snapshots/{snapshot.id}")
    moved = task.model_copy(update={"head_commit": snapshot.commit})
    save_task(Home(desk.home), moved)
    with refused(ErrorCode.POLICY_VIOLATION):
        desk.workbench.push(task.id)
    with refused(ErrorCode.POLICY_VIOLATION):
        ask(desk, task.id)
    desk.git("update-ref", f"refs/heads/{task.branch}", task.head_commit)
    save_task(Home(desk.home), task)
    assert desk.workbench.push(task.id).commit == task.head_commit, "control"


def test_s233_the_branch_of_another_task_is_no_place_where_the_remote_has_a_base(desk: Desk) -> None:
    """The remote has deleted it meanwhile, or a person has not looked at it."""
    desk.write(CI, b"on: push\n")
    pushed = desk.workbench.commit(desk.task.id, "Add CI").commit
    desk.workbench.push(desk.task.id)
    desk.workbench.update_repository(desk.repo_id)
    desk.upstream.git("branch", "-D", desk.task.branch)
    task = begin_at(desk, pushed, fetch=False)
    question = ask(desk, task)
    rule = DiffRule(flags=("ci",), verified=False)
    reasons = find_reasons_to_ask(desk.workbench._services, desk.workbench.task(task), rule)
    sent = desk.workbench.push(task)
    assert CI.encode() in desk.upstream.git("ls-tree", "-r", "--name-only", sent.branch), "void: it is not sent"
    assert any(line.startswith(f"RISK: {CI} below the base (ci") for line in question)
    assert any(CI in reason for reason in reasons)


def test_s233_what_a_fetch_adds_to_a_push_was_not_approved(desk: Desk) -> None:
    """A person approves while a branch of the remote has the base. It is deleted there, and a fetch learns of it."""
    desk.upstream.git("checkout", "-q", "-b", "other")
    desk.upstream.write(CI, b"on: push\n")
    on_branch = desk.upstream.commit()
    desk.upstream.git("checkout", "-q", "main")
    task = begin_at(desk, on_branch)
    call = desk.workbench.approval_call(PUSH, {"task_id": task})
    desk.workbench.update_repository(desk.repo_id)
    assert desk.workbench.approval_call(PUSH, {"task_id": task}) == call, "control: a fetch alone changes nothing"
    desk.upstream.git("branch", "-D", "other")
    desk.workbench.update_repository(desk.repo_id)
    with refused(ErrorCode.CONFLICT):
        desk.workbench.push(task, expected_commit=call.state)
    again = desk.workbench.approval_call(PUSH, {"task_id": task})
    assert desk.workbench.push(task, expected_commit=again.state).commit
