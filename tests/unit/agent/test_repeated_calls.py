"""The answer of a call was lost, and the agent makes it again: what was done is not asked about, and not done twice.

THREATS S225. The remote is a directory; its branch says what was sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sandbox.agent.agent import Agent
from sandbox.agent.permission import PermittedCall, permit_out_of_band
from sandbox.agent.tools import TOOLS, ToolCall
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import PushResult, TaskStatus
from sandbox.store import approvals as store_approvals
from sandbox.store.approvals import find_approval, save_approval
from sandbox.store.home import Home
from sandbox.text import format_utc
from sandbox.workbench import Watch
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk

PUSH, CLOSE = "space_repo_push", "space_repo_close_task"


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        desk.write("f", b"one\n")
        desk.workbench.commit(desk.task.id, "first")
        yield desk


def permit(desk: Desk, name: str, **given: object) -> PermittedCall:
    tool = TOOLS[name]
    return permit_out_of_band(
        Agent(desk.workbench, desk.home), tool, tool.input_model(**{"task_id": desk.task.id, **given})
    )


def ask(desk: Desk, name: str, **given: object) -> SandboxError:
    with pytest.raises(SandboxError) as caught:
        permit(desk, name, **given)
    assert caught.value.code is ErrorCode.APPROVAL_REQUIRED
    return caught.value


def approve(desk: Desk, name: str, **given: object) -> str:
    asked = ask(desk, name, **given).details
    desk.workbench.answer_approval(asked, approved=True, by="a person")
    return asked


def carry_out(desk: Desk, name: str, **given: object) -> str:
    """The id of the approval under which the call was carried out."""
    asked = approve(desk, name, **given)
    allowed = permit(desk, name, **given)
    assert (allowed.permission.approval_id, allowed.answer) == (asked, None)
    arguments = TOOLS[name].input_model(**{"task_id": desk.task.id, **given})
    permitted = Agent(desk.workbench, desk.home).with_permission(allowed.permission).workbench
    TOOLS[name].call(ToolCall(permitted, arguments, Watch(), allowed.state))
    return asked


def remote_branch(desk: Desk) -> bytes:
    return desk.upstream.git("for-each-ref", "--format=%(objectname)", f"refs/heads/{desk.task.branch}").strip()


def test_s225_a_push_that_was_carried_out_is_answered_and_sends_no_data(desk: Desk) -> None:
    asked = carry_out(desk, PUSH)
    head = desk.workbench.task(desk.task.id).head_commit
    again = permit(desk, PUSH)
    assert (again.permission.how, again.permission.approval_id) == ("known", asked)
    assert isinstance(again.answer, PushResult)
    assert (again.answer.commit, again.answer.branch) == (head, desk.task.branch)
    used = desk.workbench.approval(asked)
    assert used.used_at
    assert again.answer.note == f"This call was carried out at {format_utc(used.used_at)} under {asked}, and not again"


@pytest.mark.parametrize("moved", [True, False], ids=["moved", "deleted"])
def test_s225_a_used_approval_sends_nothing_to_a_branch_that_others_changed(desk: Desk, moved: bool) -> None:
    """Control: the test above. A person is asked, and learns that the approval was used."""
    asked = carry_out(desk, PUSH)
    args = ("update-ref", f"refs/heads/{desk.task.branch}", "main") if moved else ("branch", "-D", desk.task.branch)
    desk.upstream.git(*args)
    before = remote_branch(desk)
    error = ask(desk, PUSH)
    assert error.hint.startswith(f"Since {asked} was asked for, this changed: it was used up by the same call at ")
    assert remote_branch(desk) == before


def test_s225_a_person_is_asked_if_the_approved_call_did_not_end_well_though_the_branch_is_there(desk: Desk) -> None:
    """The call was killed before it sent anything, and a person pushed. Control: the first test."""
    asked = approve(desk, PUSH)
    assert permit(desk, PUSH).permission.approval_id == asked
    desk.workbench.push(desk.task.id)
    assert ask(desk, PUSH).hint.startswith(
        f"Since {asked} was asked for, this changed: it was used up by the same call"
    )


def test_s225_another_commit_is_asked_about(desk: Desk) -> None:
    carry_out(desk, PUSH)
    desk.write("f", b"two\n")
    desk.workbench.commit(desk.task.id, "second")
    before = remote_branch(desk)
    ask(desk, PUSH)
    assert remote_branch(desk) == before


def test_s225_without_a_used_approval_a_person_is_asked_about_what_is_there(desk: Desk) -> None:
    """Nor after the approval's time: then it says that it was used, whatever it was first asked about."""
    desk.workbench.push(desk.task.id)
    ask(desk, PUSH)
    asked = carry_out(desk, PUSH)
    assert permit(desk, PUSH).answer is not None
    over = desk.workbench.approval(asked).model_copy(update={"expires_at": datetime.now(UTC) - timedelta(seconds=1)})
    save_approval(Home(desk.home), over)
    ask(desk, PUSH)


def test_a_newer_approval_that_was_used_is_named_and_not_an_older_one_for_another_commit(desk: Desk) -> None:
    approve(desk, PUSH)
    desk.write("f", b"two\n")
    desk.workbench.commit(desk.task.id, "second")
    asked = carry_out(desk, PUSH)
    desk.upstream.git("branch", "-D", desk.task.branch)
    assert ask(desk, PUSH).hint.startswith(f"Since {asked} was asked for, this changed: it was used up")


def test_an_approval_that_expired_unused_is_named_in_the_next_question(desk: Desk) -> None:
    asked = approve(desk, PUSH)
    found = find_approval(Home(desk.home), asked)
    assert found is not None
    until = datetime.now(UTC) - timedelta(seconds=1)
    save_approval(Home(desk.home), found.model_copy(update={"expires_at": until}))
    expected = f"Since {asked} was asked for, this changed: it expired unused at {format_utc(until)}. "
    assert ask(desk, PUSH).hint.startswith(expected)


def test_of_many_approvals_that_are_over_only_the_newest_are_read(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent may let thousands of questions expire. Control: one that is among the newest."""
    asked = carry_out(desk, PUSH)
    ask(desk, CLOSE)  # files away what is over
    home = Home(desk.home)
    assert home.old_approval(asked).exists()
    assert permit(desk, PUSH).answer is not None
    monkeypatch.setattr(store_approvals, "MOST_RECENT", 0)
    ask(desk, PUSH)


def test_a_closed_task_is_closed_again_without_a_question(desk: Desk) -> None:
    """To delete its worktree is another call. Control: before, a person is asked."""
    carry_out(desk, CLOSE)
    assert desk.workbench.task(desk.task.id).status is TaskStatus.CLOSED
    assert permit(desk, CLOSE).permission.how == "known"
    ask(desk, CLOSE, delete_worktree=True)
