"""A worker that takes its operations from Temporal.

Theory. It reads three queues: the workflows of all tasks, offers to take a task, and its own queue of operations. An
operation runs in a thread while this module reports that the worker lives. A cancelled operation is answered when its
container is gone, never before. Stopping the worker lets operations in progress end.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker as TemporalPoller

from sandbox.cluster.task_workflow import OFFER, PERFORM, TAKE_OVER, TaskWorkflow, name_worker_queue
from sandbox.cluster.worker import ClusterWorker
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.operations import OperationAnswer, OperationError, TaskOperation

THREADS = 64
"""Operations at once. Checks wait for a place in the home's own run queue, so this does not bound the load."""

ANSWER_BYTES = 1024**2
"""Of an answer. Larger ones are refused: Temporal keeps every answer in its history."""

_ALIVE_EVERY_S = 1.0
_RETRY_OFFER = timedelta(seconds=1)
_ResultT = TypeVar("_ResultT")


class WorkerActivities:
    """What the workflow of a task asks of a worker."""

    def __init__(self, worker: ClusterWorker) -> None:
        self._worker = worker
        self._threads = ThreadPoolExecutor(THREADS, "operation")

    @activity.defn(name=PERFORM)
    async def perform(self, document: dict[str, Any]) -> dict[str, Any]:
        """Carry out one operation. Ends only when the operation has ended, also if it is cancelled."""
        operation = TaskOperation.model_validate(document)
        stop = threading.Event()
        answer = await self._run(partial(self._worker.perform, operation, stop.is_set), stop.set)
        return _bound_answer(answer).model_dump(mode="json")

    @activity.defn(name=OFFER)
    async def offer(self, refused: list[str]) -> dict[str, str]:
        """Take a task, unless it was lost here before: its state is in this home, but of an ended epoch."""
        if self._worker.id in refused:
            raise ApplicationError("The task was here before", next_retry_delay=_RETRY_OFFER)
        return {"worker": self._worker.id}

    @activity.defn(name=TAKE_OVER)
    async def take_over(self, document: dict[str, Any]) -> None:
        """Continue a task from the hub."""
        try:
            await self._run(partial(self._worker.take_over, **document), lambda: None)
        except SandboxError as error:
            text = f"{error.brief} {error.hint}"
            raise ApplicationError(text, type=error.reason or error.code.value, non_retryable=True) from error

    async def _run(self, act: Callable[[], _ResultT], stop: Callable[[], None]) -> _ResultT:
        running = asyncio.get_running_loop().run_in_executor(self._threads, act)
        while not running.done():
            activity.heartbeat()
            try:
                await asyncio.wait({running}, timeout=_ALIVE_EVERY_S)
            except asyncio.CancelledError:
                stop()
        return running.result()


async def run_worker(
    client: Client, worker: ClusterWorker, prefix: str, until: asyncio.Event, announce: Callable[[str], None]
) -> None:
    """Work until the event is set, and then until operations in progress have ended. `announce`: called with the
    worker's id when it begins.
    """
    activities = WorkerActivities(worker)
    async with AsyncExitStack() as stack:
        for queue, workflows, methods in (  # they end in reverse: no more offers, then operations, then answers
            (f"{prefix}-tasks", (TaskWorkflow,), ()),
            (name_worker_queue(prefix, worker.id), (), (activities.perform, activities.take_over)),
            (f"{prefix}-offers", (), (activities.offer,)),
        ):
            await stack.enter_async_context(_poll(client, queue, workflows, methods, worker.id))
        announce(worker.id)
        await until.wait()


def _poll(
    client: Client, queue: str, workflows: Sequence[type], methods: Sequence[Callable[..., Any]], identity: str
) -> TemporalPoller:
    return TemporalPoller(
        client,
        task_queue=queue,
        workflows=workflows,
        activities=methods,
        identity=identity,
        graceful_shutdown_timeout=timedelta(days=1),
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=2),
    )


def _bound_answer(answer: OperationAnswer) -> OperationAnswer:
    size = len(answer.model_dump_json())
    if size <= ANSWER_BYTES:
        return answer
    error: Mapping[str, Any] = SandboxError(
        ErrorCode.QUOTA_EXCEEDED,
        f"The answer has {size} bytes; at most {ANSWER_BYTES} pass through the cluster",
        hint="Ask for less: a range of lines, fewer files. What the operation changed is in the task.",
    ).payload()["error"]
    return answer.model_copy(update={"value": None, "error": OperationError.model_validate(error)})
