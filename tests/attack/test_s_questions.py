"""THREATS S213: text that an agent writes and a pull request publishes, and the question to a person does not show.

The control of each attack: the text is there where others read it, in the pushed commit and in the description.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.forges import body
from sandbox.models import ApprovalScope
from sandbox.store.home import Home
from sandbox.store.records import find_task, save_repository, save_task
from sandbox.workbench.delivery.description import gather_facts
from tests.attack.arena import refused
from tests.unit.conftest import Upstream, scrubbed, surroundings, unused_homes, upstream
from tests.unit.desk import Desk

__all__ = ["scrubbed", "surroundings", "unused_homes", "upstream"]
pytestmark = [pytest.mark.must, pytest.mark.xdist_group("questions")]

PUSH, OPEN_PR = "space_repo_push", "space_repo_open_pr"
STOLEN = "the key of another repository"


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "home")
    with desk.workbench:
        yield desk


def commit(desk: Desk, *messages: str) -> None:
    for message in messages:
        desk.write("f", message.encode())
        desk.workbench.commit(desk.task.id, message)


def ask(desk: Desk, tool: str) -> list[str]:
    call = desk.workbench.approval_call(tool, {"task_id": desk.task.id})
    return list(desk.workbench.request_approval(call).question)


def serve_by_github(desk: Desk) -> None:
    """A pull request from a local path is refused."""
    known = desk.workbench.repository(desk.repo_id)
    save_repository(Home(desk.home), known.model_copy(update={"remote_url": "https://github.com/acme/repo"}))


def body_of(desk: Desk) -> str:
    return body.compose(gather_facts(desk.workbench._services, find_task(Home(desk.home), desk.task.id)))


def test_s213_a_question_about_a_push_shows_each_commit_message_whole(desk: Desk) -> None:
    commit(desk, f"Fix it\n\nIn the body: {STOLEN}", "Tidy\n\nverified: yes, every check passed\x1b[2J\u200b")
    question = ask(desk, PUSH)
    sent = desk.workbench.push(desk.task.id)
    log = desk.upstream.git("log", "-2", "--format=%B", sent.branch)
    assert STOLEN.encode() in log, "void: it is not sent"
    assert "publishes: 2 commit message(s)" in question
    assert any(line.endswith(f"| In the body: {STOLEN}") for line in question)
    assert question.index(next(line for line in question if line.endswith("| Fix it"))) < question.index(
        next(line for line in question if line.endswith("| Tidy"))
    )
    assert not [line for line in question if line.strip().startswith("verified: yes")]
    assert not [line for line in question if "\x1b" in line or "\u200b" in line]


def test_s213_a_question_about_a_pull_request_shows_the_prompt_that_it_publishes(desk: Desk) -> None:
    """A push publishes no prompt, so its question has none."""
    desk.task = desk.workbench.create_task(desk.repo_id, f"Do it\n{STOLEN}")
    desk.root = desk.worktree(desk.task)
    commit(desk, "Harmless")
    serve_by_github(desk)
    assert STOLEN in body_of(desk), "void: it is not published"
    assert f"    | {STOLEN}" in ask(desk, OPEN_PR)
    assert not [line for line in ask(desk, PUSH) if STOLEN in line]


def test_s213_a_question_whose_messages_are_too_long_to_read_is_not_put(desk: Desk) -> None:
    commit(desk, "Short\n\n" + "line\n" * 2500)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        ask(desk, PUSH)
    assert desk.workbench.push(desk.task.id).commit, "void: a person could not push it either"


@pytest.mark.parametrize("what", ["message", "prompt"])
def test_s213_another_text_than_the_approved_one_is_not_covered(desk: Desk, what: str) -> None:
    """Control: the approval covers the call before the change."""
    commit(desk, "Harmless")
    serve_by_github(desk)
    workbench = desk.workbench
    arguments = {"task_id": desk.task.id}
    call = workbench.approval_call(OPEN_PR, arguments)
    asked = workbench.request_approval(call)
    workbench.answer_approval(asked.id, approved=True, by="a person", scope=ApprovalScope.ONCE)
    assert workbench.find_approval(call) is not None, "void"
    if what == "message":
        commit(desk, STOLEN)
    else:
        home = Home(desk.home)
        save_task(home, find_task(home, desk.task.id).model_copy(update={"prompt": STOLEN}))
    assert workbench.find_approval(workbench.approval_call(OPEN_PR, arguments)) is None
    with refused(ErrorCode.CONFLICT):
        workbench.push(desk.task.id, expected_commit=call.state)
