"""THREATS S234: a profile that a person approved for a task at one commit is taken to a base with other checks.

The control of each attack: the same move of a task without a chosen profile, or to a base with the same checks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.agent import permission
from sandbox.agent.agent import Agent
from sandbox.agent.permission import PermittedCall
from sandbox.agent.tool_arguments import validate_arguments
from sandbox.agent.tools import TOOLS, ToolCall
from sandbox.errors import ErrorCode
from sandbox.models import Actor, ApprovalScope, Task, TaskOptions
from sandbox.workbench import Workbench
from sandbox.workbench.checks.callbacks import Watch
from tests.attack.arena import refused
from tests.unit.conftest import Upstream, scrubbed, surroundings, unused_homes, upstream
from tests.unit.desk import Desk
from tests.unit.workbench.approvals.test_requests import write_profile

__all__ = ["scrubbed", "surroundings", "unused_homes", "upstream"]
pytestmark = [pytest.mark.must, pytest.mark.xdist_group("moved_profiles")]

SYNC, CHECKOUT = "space_repo_sync", "space_repo_checkout"
MOVES = [
    pytest.param(CHECKOUT, {"ref": "prod"}, id="checkout"),
    pytest.param(SYNC, {"onto": "prod"}, id="sync"),
]


@pytest.fixture
def workbench(upstream: Upstream, tmp_path: Path) -> Iterator[Workbench]:
    """An agent's, with a branch `prod` whose usual checks are more than those of `main`, and `same` with those."""
    desk = Desk(upstream, tmp_path / "home")
    write_profile(desk, "loose", lint="true")
    write_profile(desk, "strict", test="pytest", audit="x")
    strict = desk.home / "profiles" / "strict.toml"
    strict.write_text(f'{strict.read_text()}\n[detect]\nall = [{{ file = "strict.lock" }}]\n')
    for branch, name in (("same", "g"), ("prod", "strict.lock")):
        upstream.git("checkout", "-q", "-b", branch, "main")
        upstream.write(name, b"")
        upstream.commit()
    upstream.git("checkout", "-q", "main")
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    with Workbench(desk.home, environ=environ, allow_file=True, actor=Actor.AGENT) as opened:
        opened.update_repository(desk.repo_id)
        yield opened


@pytest.fixture
def agent(workbench: Workbench) -> Agent:
    return Agent(workbench, workbench.home, approvals="auto")


def begin(workbench: Workbench, profile: str | None = "loose") -> Task:
    (repository,) = workbench.repositories()
    return workbench.create_task(repository.id, "p", options=TaskOptions(profile=profile))


def permit(agent: Agent, tool: str, arguments: dict[str, Any]) -> PermittedCall:
    wanted = validate_arguments(TOOLS[tool], {**arguments, "offline": True})
    return permission.permit_out_of_band(agent, TOOLS[tool], wanted)


def call(agent: Agent, tool: str, arguments: dict[str, Any], state: str | None) -> Any:
    wanted = validate_arguments(TOOLS[tool], {**arguments, "offline": True})
    return TOOLS[tool].call(ToolCall(agent.workbench, wanted, Watch(), state))


@pytest.mark.parametrize(("tool", "arguments"), MOVES)
def test_s234_a_person_is_asked_before_a_chosen_profile_gets_another_base(
    workbench: Workbench, agent: Agent, tool: str, arguments: dict[str, Any]
) -> None:
    task = begin(workbench)
    wanted = {"task_id": task.id, **arguments}
    with refused(ErrorCode.CONFLICT):
        call(agent, tool, wanted, None)  # as when the fetch of the call brings the commit
    with refused(ErrorCode.APPROVAL_REQUIRED):
        permit(agent, tool, wanted)
    assert workbench.task(task.id).base_branch == "main"
    (asked,) = workbench.approvals()
    assert any(line.startswith("profile: loose instead of strict, as of commit") for line in asked.question)
    assert "leaves out: 2 of 2 check(s) of strict" in asked.question
    with refused(ErrorCode.INVALID_INPUT):
        workbench.answer_approval(asked.id, approved=True, by="a person", scope=ApprovalScope.TASK)
    workbench.answer_approval(asked.id, approved=True, by="a person")
    permitted = permit(agent, tool, wanted)
    assert permitted.permission.how == "person"
    call(agent, tool, wanted, permitted.state)
    assert workbench.task(task.id).base_branch == "prod"


@pytest.mark.parametrize(("tool", "arguments"), MOVES)
def test_s234_a_task_without_a_chosen_profile_moves_without_a_question(
    workbench: Workbench, agent: Agent, tool: str, arguments: dict[str, Any]
) -> None:
    task = begin(workbench, None)
    wanted = {"task_id": task.id, **arguments}
    call(agent, tool, wanted, permit(agent, tool, wanted).state)
    assert workbench.task(task.id).base_branch == "prod"


@pytest.mark.parametrize(("tool", "name"), [(CHECKOUT, "ref"), (SYNC, "onto")])
def test_s234_a_base_with_the_same_checks_needs_no_question(
    workbench: Workbench, agent: Agent, tool: str, name: str
) -> None:
    wanted = {"task_id": begin(workbench).id, name: "same"}
    call(agent, tool, wanted, permit(agent, tool, wanted).state)
    assert workbench.task(wanted["task_id"]).base_branch == "same"


def test_s234_a_sync_with_the_own_base_branch_is_asked_about_too(
    workbench: Workbench, agent: Agent, upstream: Upstream
) -> None:
    task = begin(workbench)
    upstream.write("strict.lock", b"")
    upstream.commit()
    wanted = {"task_id": task.id}
    assert permit(agent, SYNC, wanted).permission.how == "policy", "void: it was fetched before"
    workbench.update_repository(task.repo_id)
    with refused(ErrorCode.APPROVAL_REQUIRED):
        permit(agent, SYNC, wanted)
    with refused(ErrorCode.CONFLICT):
        call(agent, SYNC, wanted, None)
    (asked,) = workbench.approvals()
    workbench.answer_approval(asked.id, approved=True, by="a person")
    call(agent, SYNC, wanted, permit(agent, SYNC, wanted).state)
    assert workbench.task(task.id).base_commit == upstream.oid("main")


def test_s234_an_approved_move_does_not_cover_what_was_fetched_since(
    workbench: Workbench, agent: Agent, upstream: Upstream
) -> None:
    task = begin(workbench)
    wanted = {"task_id": task.id, "ref": "prod"}
    with refused(ErrorCode.APPROVAL_REQUIRED):
        permit(agent, CHECKOUT, wanted)
    (asked,) = workbench.approvals()
    workbench.answer_approval(asked.id, approved=True, by="a person")
    permitted = permit(agent, CHECKOUT, wanted)
    upstream.git("checkout", "-q", "prod")
    (upstream.root / "strict.lock").unlink()
    upstream.commit()
    upstream.git("checkout", "-q", "main")
    workbench.update_repository(task.repo_id)
    with refused(ErrorCode.CONFLICT):
        call(agent, CHECKOUT, wanted, permitted.state)
    assert workbench.task(task.id).base_branch == "main"


def test_s234_a_person_moves_a_task_without_a_question(workbench: Workbench) -> None:
    """They chose the profile, and see the base that they name."""
    task = begin(workbench)
    with Workbench(workbench.home, environ={"PATH": "/usr/bin:/bin"}, allow_file=True) as person:
        assert person.checkout_task(task.id, "prod").base_branch == "prod"
