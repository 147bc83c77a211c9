"""Tasks that began under an earlier version go on: the workflow does again what their history says."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
from temporalio.workflow import NondeterminismError

from sandbox.cluster import task_workflow
from sandbox.cluster.task_workflow import TaskWorkflow

HISTORIES = Path(__file__).parents[2] / "data" / "temporal"
"""Recorded at the server that the tests use, version 1.32.0, with workers that answered without doing anything."""


def replay(text: str, runner: WorkflowRunner | None = None) -> None:
    """`runner`: None: that of the workers."""
    history = WorkflowHistory.from_json("recorded", text)
    replayer = Replayer(workflows=[TaskWorkflow], workflow_runner=runner or SandboxedWorkflowRunner())
    asyncio.run(replayer.replay_workflow(history))


@pytest.mark.parametrize("path", sorted(HISTORIES.glob("*.json")), ids=lambda path: path.stem)
def test_a_history_of_an_earlier_version_is_replayed(path: Path) -> None:
    replay(path.read_text())


@pytest.mark.parametrize("path", sorted(HISTORIES.glob("*.json")), ids=lambda path: path.stem)
def test_a_history_that_got_longer_under_an_earlier_version_is_not_ended_by_a_replay(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: without the mark of the change, a worker would end it where the other one went on."""
    history = json.loads(path.read_text())
    (start,) = (e for e in history["events"] if "workflowExecutionStartedEventAttributes" in e)
    (payload,) = start["workflowExecutionStartedEventAttributes"]["input"]["payloads"]
    document = json.loads(base64.b64decode(payload["data"])) | {"renewed_events": 12}
    payload["data"] = base64.b64encode(json.dumps(document).encode()).decode()
    replay(json.dumps(history))
    patched = workflow.patched
    monkeypatch.setattr(workflow, "patched", lambda change: change == task_workflow._RENEWS_EARLY or patched(change))
    with pytest.raises(NondeterminismError):
        replay(json.dumps(history), UnsandboxedWorkflowRunner())


def test_the_replay_notices_a_workflow_that_would_do_something_else() -> None:
    """Control: the same history, with another activity in the place of the first offer."""
    history = json.loads((HISTORIES / "task-that-moved.json").read_text())
    offer = next(e for e in history["events"] if "activityTaskScheduledEventAttributes" in e)
    offer["activityTaskScheduledEventAttributes"]["activityType"]["name"] = "take-over"
    with pytest.raises(NondeterminismError):
        replay(json.dumps(history))


@pytest.mark.parametrize(("said", "kept"), [({"epoch": 1, "lost": "all"}, {"epoch": 1}), ([], [])])
def test_what_a_worker_says_of_a_loss_is_dropped(monkeypatch: pytest.MonkeyPatch, said: object, kept: object) -> None:
    """Only the workflow knows of one. What is no answer is refused by who reads it."""

    async def perform() -> object:
        return said

    monkeypatch.setattr(workflow, "start_activity", lambda *_, **__: perform())
    waiting = TaskWorkflow._await_answer(MagicMock(), "one", ("perform", {}), "queue", 1.0, 1.0)
    assert asyncio.run(waiting) == kept
