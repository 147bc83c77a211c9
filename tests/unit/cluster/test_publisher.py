"""Which repositories a controller that publishes clones, and what it sends. Ids: THREATS S145, N10."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from unittest.mock import MagicMock
from uuid import uuid4

import pytest

from sandbox.approvals import AgentCall
from sandbox.cluster.publisher import ClusterPublisher, require_listed
from sandbox.config import Settings
from sandbox.errors import ErrorCode
from sandbox.models.operations import OperationName, TaskOperation
from sandbox.policy.approvals import Decision
from sandbox.workbench.tasks.approved_state import join_state
from tests.unit.conftest import refused

TASK = f"task-{uuid4()}"


@pytest.mark.parametrize(
    ("url", "pattern", "is_listed"),
    [
        ("https://github.com/Acme/App", "github.com/acme/*", True),
        ("https://github.com/acme/app", "GitHub.com/Acme/App", True),
        ("https://GIT.example.org/team/app", "git.example.org/team/*", True),
        ("https://git.example.org/team/app", "Git.Example.org/team/app", True),
        ("https://git.example.org/Team/app", "git.example.org/team/app", False),
        ("ssh://git@git.example.org/team/APP", "git.example.org/team/app", False),
        ("https://git.example.org/team/app", "git.example.org/Team/*", False),
        ("https://forge.example.org/Acme/App", "forge.example.org/acme/*", True),
        ("https://github.com/other/app", "github.com/acme/*", False),
    ],
)
def test_s145_names_that_only_differ_in_case_are_the_same_on_a_forge_only(
    url: str, pattern: str, *, is_listed: bool
) -> None:
    settings = Settings.model_validate(
        {"cluster": {"publishes": [pattern]}, "remotes": {"gitlab_hosts": ["forge.example.org"]}}
    )
    with nullcontext() if is_listed else refused(ErrorCode.POLICY_VIOLATION):
        require_listed(url, settings)


@pytest.mark.parametrize("name", [OperationName.PUSH, OperationName.OPEN_PR])
@pytest.mark.parametrize("head", ["a" * 40, "b" * 40], ids=["control", "another commit"])
def test_n10_what_is_sent_is_all_that_was_approved(tmp_path: Path, name: OperationName, head: str) -> None:
    """Not the commit alone. Control: for the operation's commit it is sent."""
    commit, state = "a" * 40, join_state(head, {"base_branch": "main"})
    bench = MagicMock(home=tmp_path, answer_once=lambda _operation, work: work(), instance_id="0" * 16)
    bench.settings = Settings.model_validate({"gate": {"require": "none"}})
    bench.approval_decision.return_value = Decision.ASK
    bench.approval_call.return_value = AgentCall("space_repo_push", {}, "policy", TASK, state=state)
    bench.is_allowed_by_diff.return_value = True
    acting = bench.acting.return_value
    acting.push.return_value = acting.open_pull_request.return_value = "sent"
    operation = TaskOperation(id=uuid4().hex, task_id=TASK, name=name, arguments={"commit": commit})
    answer = ClusterPublisher(bench, "hub").perform("https://github.com/o/r", operation, lambda: False)
    sent = [one.kwargs["expected_commit"] for one in (acting.push.call_args, acting.open_pull_request.call_args) if one]
    assert sent == ([state] if head == commit else [])
    assert (answer.error.code if answer.error else answer.value) == ("sent" if head == commit else ErrorCode.CONFLICT)
