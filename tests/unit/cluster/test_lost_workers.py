"""A worker that its server did not hear of stops what it does, and says nothing about how that ended."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from temporalio.activity import ActivityCancellationDetails, _CompleteAsyncError
from temporalio.testing import ActivityEnvironment

from sandbox.cluster.done_operations import digest_operation
from sandbox.cluster.temporal_worker import PublisherActivities, WorkerActivities
from sandbox.cluster.worker_slots import WorkerSlots
from sandbox.models.operations import OperationAnswer, OperationName, TaskOperation

TASK = f"task-{uuid.uuid4()}"


class Stoppable:
    """Carries out operations that end when they are stopped, with the verdict `killed`."""

    id = f"worker-{'1' * 16}"

    def perform(self, *given: Any) -> OperationAnswer:
        """With the URL first, if it publishes."""
        *_, operation, cancelled = given
        while not cancelled():
            pass
        return OperationAnswer(
            operation_id=operation.id, task_id=operation.task_id, epoch=1, worker=self.id, value=["killed"]
        )


def describe(name: OperationName) -> dict[str, Any]:
    return TaskOperation(id="one", task_id=TASK, epoch=1, name=name, arguments={}).model_dump(mode="json")


def work(name: OperationName) -> tuple[Callable[..., Any], Mapping[str, Any]]:
    worker: Any = Stoppable()
    return WorkerActivities(worker, WorkerSlots(1), lambda _: None).perform, describe(name)


def publish() -> tuple[Callable[..., Any], Mapping[str, Any]]:
    publisher: Any = Stoppable()
    return PublisherActivities(publisher).publish, {
        "url": "https://git.example/a",
        "operation": describe(OperationName.PUSH),
    }


def carry_out(asked: tuple[Callable[..., Any], Mapping[str, Any]], why: ActivityCancellationDetails) -> Any:
    """The answer of an activity that is cancelled when it runs."""
    act, document = asked

    async def run() -> Any:
        environment, has_begun = ActivityEnvironment(), asyncio.Event()
        environment.on_heartbeat = lambda *_: has_begun.set()
        running = asyncio.ensure_future(environment.run(act, document))
        await has_begun.wait()
        environment.cancel(why)
        return await running

    return asyncio.run(run())


ASKED = {
    "check": lambda: work(OperationName.CHECK),
    "reading": lambda: work(OperationName.STATUS),
    "push": publish,
}


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("why", ["timed_out", "not_found"])
def test_s176_what_was_stopped_because_the_server_heard_nothing_is_not_answered(name: str, why: str) -> None:
    """A server that comes back at that moment would take it for the answer."""
    with pytest.raises(_CompleteAsyncError):
        carry_out(ASKED[name](), ActivityCancellationDetails(**{why: True}))


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("why", ["cancel_requested", "worker_shutdown"])
def test_what_a_caller_stopped_is_answered(name: str, why: str) -> None:
    """Control."""
    answer = carry_out(ASKED[name](), ActivityCancellationDetails(**{why: True}))
    asked = {"check": OperationName.CHECK, "reading": OperationName.STATUS, "push": OperationName.PUSH}[name]
    assert answer["value"] == ["killed"]
    assert answer["digest"] == digest_operation(TaskOperation.model_validate(describe(asked)))
