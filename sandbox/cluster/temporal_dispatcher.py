"""Give tasks to the workers of a Temporal cluster."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import (
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
    WorkflowUpdateStage,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from sandbox.cluster.dispatcher import draw_task_id
from sandbox.cluster.task_workflow import TaskStart, TaskWorkflow
from sandbox.cluster.temporal_client import ClusterAddress, connect_client
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.operations import OperationAnswer, OperationName, TaskOperation, WorkerInfo

_ResultT = TypeVar("_ResultT")


class TemporalDispatcher:
    """See `Dispatcher`. Thread-safe: one thread talks to the server for all callers."""

    def __init__(self, place: ClusterAddress) -> None:
        self._place = place
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="temporal", daemon=True)
        self._thread.start()
        try:
            self._client = self._wait(connect_client(place))
        except BaseException:
            self.close()
            raise

    def place(self, url: str, arguments: Mapping[str, Any], task_id: str = "") -> OperationAnswer:
        """See `Dispatcher`."""
        task = task_id or draw_task_id()
        start = TaskStart(task, url, self._place.name, self._place.lost_after_s)
        self._wait(self._start(start))
        create = TaskOperation(
            id="create", task_id=task, name=OperationName.CREATE, arguments={**arguments, "url": url}
        )
        self._wait(self._submit(create))
        return self._wait(self._result(create))

    async def _start(self, start: TaskStart) -> None:
        await self._client.start_workflow(
            TaskWorkflow.run,
            start,
            id=self._name(start.task_id),
            task_queue=f"{self._place.name}-tasks",
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )

    def submit(self, operation: TaskOperation) -> None:
        """See `Dispatcher`."""
        self._wait(self._submit(operation))

    async def _submit(self, operation: TaskOperation) -> None:
        await self._handle(operation.task_id).start_update(
            TaskWorkflow.operate,
            operation.model_dump(mode="json"),
            id=operation.id,
            wait_for_stage=WorkflowUpdateStage.ACCEPTED,
        )

    def result(self, operation: TaskOperation, wait_s: float | None = None) -> OperationAnswer | None:
        """See `Dispatcher`. Raises also: `internal` if no worker could carry it out."""
        try:
            return self._wait(self._result(operation, None if wait_s is None else max(wait_s, 0.1)))
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            return None

    async def _result(self, operation: TaskOperation, wait_s: float | None = None) -> OperationAnswer:
        update: Any = self._handle(operation.task_id).get_update_handle(operation.id)
        limit = None if wait_s is None else timedelta(seconds=wait_s)
        try:
            return OperationAnswer.model_validate(await update.result(rpc_timeout=limit))
        except WorkflowUpdateFailedError as error:
            is_idle = isinstance(error.cause, ApplicationError) and error.cause.type == "no_worker"
            raise SandboxError(
                ErrorCode.ENGINE_UNAVAILABLE if is_idle else ErrorCode.INTERNAL,
                f"Operation {operation.id} of {operation.task_id} could not be carried out",
                details=str(error.cause)[:1000],
                hint="`sandbox cluster workers` shows who can take tasks.",
            ) from error

    def cancel(self, operation: TaskOperation) -> None:
        """See `Dispatcher`."""
        self._wait(self._handle(operation.task_id).signal(TaskWorkflow.cancel, operation.id))
        self.result(operation)

    def find_placement(self, task_id: str) -> Mapping[str, Any]:
        """Which worker has a task, its epoch, and the workers that were lost. Raises: `not_found`."""
        return self._wait(self._handle(task_id).query(TaskWorkflow.placement))

    def workers(self) -> tuple[WorkerInfo, ...]:
        """See `Dispatcher`. A worker that was killed is listed until Temporal forgets it, for up to five minutes."""
        answer = self._wait(
            self._client.workflow_service.describe_task_queue(
                DescribeTaskQueueRequest(
                    namespace=self._place.namespace,
                    task_queue=TaskQueue(name=f"{self._place.name}-offers"),
                    task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
                )
            )
        )
        return tuple(WorkerInfo(id=name) for name in sorted({poller.identity for poller in answer.pollers}))

    def close(self) -> None:
        """See `Dispatcher`."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _handle(self, task_id: str) -> WorkflowHandle[TaskWorkflow, None]:
        return self._client.get_workflow_handle_for(TaskWorkflow.run, self._name(task_id))

    def _name(self, task_id: str) -> str:
        return f"{self._place.name}-{task_id}"

    def _wait(self, work: Coroutine[Any, Any, _ResultT]) -> _ResultT:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except RPCError as error:
            is_unknown = error.status is RPCStatusCode.NOT_FOUND
            raise SandboxError(
                ErrorCode.NOT_FOUND if is_unknown else ErrorCode.NETWORK_ERROR,
                "The cluster does not know this task or operation" if is_unknown else "The Temporal server failed",
                details=str(error)[:500],
                hint="Ask for the task's state with its whole id." if is_unknown else "",
            ) from error
