"""A task that its next worker cannot continue is offered to others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from temporalio import workflow
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutError, TimeoutType

from sandbox.cluster.answers import read_placement
from sandbox.cluster.task_placement import TaskPlacement
from sandbox.cluster.task_queues import OF_ONE_WORKER, TaskStart
from sandbox.cluster.task_updates import _read_result
from sandbox.cluster.temporal_worker import name_refusal
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.operations import OperationName, TaskOperation
from tests.unit.conftest import refused

LOST, HEALTHY, FAULTY = (f"worker-{digit * 16}" for digit in "123")


@dataclass
class Cluster:
    """Workers that are offered a task in this order, and a hub that gives it away once for each epoch. `failing`: what
    a worker meets when it has claimed the task (`heartbeat`: it is killed), or before.
    """

    workers: Sequence[str]
    failing: dict[str, str] = field(default_factory=dict)
    hub_epoch: int = 1
    asked: list[tuple[str, int]] = field(default_factory=list)

    async def offer(
        self, _placement: object, _waiting: str, _repository: str, _limit: float, refused: list[str]
    ) -> str:
        return next((worker for worker in self.workers if worker not in refused), "")

    async def take_over(self, _name: str, document: dict[str, Any], **options: Any) -> None:
        worker, epoch = options["task_queue"].removeprefix("p-"), document["epoch"]
        self.asked.append((worker, epoch))
        failing = self.failing.get(worker)
        if failing not in {None, "heartbeat"}:
            raise fail(ApplicationError("It refused us", type=failing))
        if self.hub_epoch >= epoch:
            raise fail(ApplicationError("Another host continues the task", type="epoch_ended"))
        self.hub_epoch = epoch
        if failing:
            raise fail(TimeoutError("silent", type=TimeoutType.HEARTBEAT, last_heartbeat_details=[]))


def fail(cause: BaseException) -> ActivityError:
    error = ActivityError(
        "failed",
        scheduled_event_id=1,
        started_event_id=1,
        identity="",
        activity_type="",
        activity_id="",
        retry_state=None,
    )
    error.__cause__ = cause
    return error


Replace = Callable[[Cluster], tuple[TaskStart, str | ApplicationError]]


@pytest.fixture
def replace(monkeypatch: pytest.MonkeyPatch) -> Replace:
    """Lose the worker of a task; returns the task, and what its operation says of the loss, or fails with."""

    def run(cluster: Cluster) -> tuple[TaskStart, str | ApplicationError]:
        monkeypatch.setattr(TaskPlacement, "_offer", lambda *given: cluster.offer(*given))
        monkeypatch.setattr(workflow, "execute_activity", cluster.take_over)
        task = TaskStart("task", "https://h/o/r", "p", worker=LOST, epoch=1, is_created=True, repository="k")
        try:
            return task, asyncio.run(TaskPlacement(task, {}).replace_worker(LOST, 1, "one"))
        except ApplicationError as error:
            return task, error

    monkeypatch.setattr(workflow, "patched", lambda _change: True)
    monkeypatch.setattr(workflow, "now", lambda: datetime.now(UTC))
    return run


def test_a_worker_that_is_killed_when_it_has_claimed_a_task_leaves_it_to_the_next_one(replace: Replace) -> None:
    cluster = Cluster([FAULTY, HEALTHY], {FAULTY: "heartbeat"})
    task, said = replace(cluster)
    assert cluster.asked == [(FAULTY, 2), (HEALTHY, 2), (HEALTHY, 3)]
    assert (task.worker, task.epoch, task.loss) == (HEALTHY, 3, said)


def test_a_hub_in_which_each_epoch_has_ended_is_not_asked_without_end(replace: Replace) -> None:
    task, said = replace(Cluster([HEALTHY], hub_epoch=10**9))
    assert (task.worker, getattr(said, "type", None)) == ("", "epoch_ended")


@pytest.mark.parametrize("why", sorted(OF_ONE_WORKER))
def test_a_worker_that_cannot_reach_the_hub_leaves_a_task_to_others(replace: Replace, why: str) -> None:
    cluster = Cluster([FAULTY, HEALTHY], {FAULTY: why})
    task, _ = replace(cluster)
    assert (task.worker, [worker for worker, _ in cluster.asked]) == (HEALTHY, [FAULTY, HEALTHY])
    assert FAULTY not in task.lost


@pytest.mark.parametrize("code", sorted(OF_ONE_WORKER))
def test_a_caller_gets_the_code_of_the_last_error(code: str) -> None:
    class Failed:
        async def result(self) -> None:
            raise WorkflowUpdateFailedError(ApplicationError("a worker cannot continue the task", type=code))

    asked = TaskOperation(id="one", task_id=f"task-{UUID(int=1)}", name=OperationName.STATUS)
    with refused(ErrorCode(code)):
        asyncio.run(_read_result(Failed(), asked))


def test_the_last_error_names_its_worker_if_no_other_one_takes_the_task(replace: Replace) -> None:
    task, said = replace(Cluster([FAULTY], {FAULTY: "auth_failed"}))
    assert isinstance(said, ApplicationError)
    assert (said.type, FAULTY in str(said), task.worker) == ("auth_failed", True, "")
    assert LOST in (read_placement({"loss": task.loss, "lost_at": task.lost_at}).loss or ""), "said during the search"


@pytest.mark.parametrize(
    ("code", "reason", "named"),
    [
        (ErrorCode.QUOTA_EXCEEDED, "disk", "quota_exceeded"),
        (ErrorCode.QUOTA_EXCEEDED, "storage", "quota_exceeded"),
        (ErrorCode.CONFLICT, "epoch_ended", "epoch_ended"),
        (ErrorCode.CONFLICT, "task_exists", "task_exists"),
        (ErrorCode.TIMEOUT, "", "timeout"),
    ],
)
def test_a_worker_names_a_code_or_a_reason_that_the_workflow_knows(code: ErrorCode, reason: str, named: str) -> None:
    assert name_refusal(SandboxError(code, "x", reason=reason)) == named


@pytest.mark.parametrize("why", ["not_found", "unsafe_repository"])
def test_a_state_that_no_worker_can_use_fails_at_once(replace: Replace, why: str) -> None:
    cluster = Cluster([FAULTY, HEALTHY], {FAULTY: why})
    _, said = replace(cluster)
    assert (isinstance(said, ApplicationError), len(cluster.asked)) == (True, 1)


def test_a_task_found_later_says_what_it_lost_before(replace: Replace, monkeypatch: pytest.MonkeyPatch) -> None:
    task, _ = replace(Cluster([FAULTY], {FAULTY: "auth_failed"}))
    later = Cluster([HEALTHY], hub_epoch=1)
    monkeypatch.setattr(TaskPlacement, "_offer", lambda *given: later.offer(*given))
    monkeypatch.setattr(workflow, "execute_activity", later.take_over)
    said = asyncio.run(TaskPlacement(task, {}).ensure_worker("two"))
    assert (LOST in said, HEALTHY in said, task.loss) == (True, True, said)
    assert asyncio.run(TaskPlacement(task, {}).ensure_worker("three")) == "", "control"


@pytest.mark.parametrize("why", ["epoch_ended", "auth_failed"])
def test_a_history_without_the_mark_of_the_change_fails_as_it_did(
    replace: Replace, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(workflow, "patched", lambda change: change != "asks-others")
    cluster = Cluster([FAULTY, HEALTHY], {FAULTY: why})
    _, said = replace(cluster)
    assert (isinstance(said, ApplicationError), cluster.asked) == (True, [(FAULTY, 2)])
