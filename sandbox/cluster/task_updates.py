"""Send operations to the workflow of their task, and read their answers: each operation is an update of it.

Theory. The server takes an update once for its id, but each history of a task for itself. So before an operation is
sent that may have been sent before, the earlier histories are looked at. If none has it, it is sent to the history that
was the present one then, by its run id: should that be replaced meanwhile, the server refuses it, and the look is
repeated. An operation with an id that was just drawn is sent at once; only if no answer came to that, it is looked for.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from temporalio.client import (
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateHandle,
    WorkflowUpdateStage,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from sandbox.cluster.answers import read_answer
from sandbox.cluster.dispatcher import complete_operation
from sandbox.cluster.former_histories import read_former
from sandbox.cluster.server_requests import ServerRequests
from sandbox.cluster.server_thread import ServerThread
from sandbox.cluster.task_queues import ALL_READS, ARGUMENT_BYTES, LARGE_BYTES, NO_ROOM, OF_ONE_WORKER, measure_payload
from sandbox.cluster.task_workflow import TaskWorkflow
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.operations import OperationAnswer, TaskOperation

FORMER_S = 2.0
"""How long an answer is looked for that the present history of its task does not have, at least."""

QUERY = timedelta(seconds=5)
"""How long one worker may take to answer about a task. The server asks a worker that hangs, too: it cannot tell."""

_ABOUT_THE_HISTORY = frozenset({RPCStatusCode.NOT_FOUND, RPCStatusCode.RESOURCE_EXHAUSTED})
"""What the server says of a history that has ended. For minutes after that it may say that it is closing, with the
status that a busy task has, too.
"""

_NO_ROOM_PAUSE_S = 0.2  # until a task is asked again; a reading operation takes about as long
_FAILURES = {
    "no_worker": (ErrorCode.ENGINE_UNAVAILABLE, "no_worker"),
    "cancelled": (ErrorCode.CONFLICT, "cancelled"),
    "no_publisher": (ErrorCode.ENGINE_UNAVAILABLE, "no_publisher"),
    "history_full": (ErrorCode.QUOTA_EXCEEDED, "history_full"),
    "worker_busy": (ErrorCode.CONFLICT, "worker_busy"),
    **{code: (ErrorCode(code), None) for code in OF_ONE_WORKER},  # of the last worker that could not continue the task
}
_NO_PUBLISHER_HINT = "Start `sandbox worker` on a home with cluster.role = 'publish' (docs/cluster.md)."


def name_workflow(prefix: str, task_id: str) -> str:
    """The id of a task's workflow. `prefix`: the name of the cluster."""
    return f"{prefix}-{task_id}"


class TaskUpdates:
    """Those of the tasks of one cluster. `prefix`: its name."""

    def __init__(self, thread: ServerThread, requests: ServerRequests, prefix: str) -> None:
        self._thread = thread
        self._requests = requests
        self._prefix = prefix

    async def submit(self, operation: TaskOperation, wait_s: float, *, is_new: bool) -> None:
        """Have an operation accepted, unless it was. Asks again as long as the task refuses it for others that are in
        progress. `is_new`: it was never sent. Raises: `conflict` (`reason`: `task_busy`) if these are not answered in
        that time; `TimeoutError` if no worker answers.
        """
        submission = _Submission(self._thread, name_workflow(self._prefix, operation.task_id), operation, is_new)
        try:
            handle = await self._requests.ask(submission.send, wait_s)
        except TimeoutError as error:
            if submission.is_refused:
                raise _busy_task_error(operation, wait_s) from error
            raise
        # The server forgets a refused one, so `result` would not find it. Others keep their answer for `result`.
        if operation.name in ALL_READS and handle is not None and handle._known_outcome is not None:
            await _read_result(handle, operation)

    async def result(self, operation: TaskOperation, wait_s: float) -> OperationAnswer | None:
        """The answer of an operation; None: there is none in that time, or in `FORMER_S`, if the present history does
        not know it. Raises: `RPCError`, `NOT_FOUND` if it was never sent; as `_read_result`.
        """
        ends_at = time.monotonic() + max(wait_s, FORMER_S)
        update: Any = self._handle(operation.task_id).get_update_handle(operation.id)
        try:
            try:
                return await self._requests.ask(lambda: _read_result(update, operation), wait_s)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
                if (answer := await self._find_former(operation, ends_at)) is None:
                    raise
                return answer
        except TimeoutError:
            return None

    async def _find_former(self, operation: TaskOperation, ends_at: float) -> OperationAnswer | None:
        """The answer of an operation that the task's present history does not know: a new one began when the operation
        had ended. None: it was never sent. Raises: `TimeoutError`.
        """
        workflow = name_workflow(self._prefix, operation.task_id)
        read = partial(_read_result, operation=operation)
        look = partial(read_former, self._thread.client, workflow, operation.id, read)
        found = await self._requests.ask(look, ends_at - time.monotonic())
        if found.is_complete:
            return found.value
        return await self._find_removed(operation, ends_at)

    async def _find_removed(self, operation: TaskOperation, ends_at: float) -> OperationAnswer | None:
        """As a worker knows it, since the server has removed that history; None: it does not. An operation that only
        reads is carried out again: it may also have been refused. Raises: `TimeoutError`.
        """
        task = self._handle(operation.task_id)
        if operation.name in ALL_READS:
            await self.submit(operation, ends_at - time.monotonic(), is_new=True)
            update: Any = task.get_update_handle(operation.id)
            return await self._requests.ask(lambda: _read_result(update, operation), ends_at - time.monotonic())
        ask = partial(task.query, TaskWorkflow.answer, operation.id, rpc_timeout=QUERY)
        try:
            known = await self._requests.ask(ask, ends_at - time.monotonic())
        except WorkflowQueryFailedError:  # a worker of an earlier version
            return None
        return None if known is None else read_answer(known, operation)

    def _handle(self, task_id: str) -> WorkflowHandle[TaskWorkflow, None]:
        return self._thread.client.get_workflow_handle_for(TaskWorkflow.run, name_workflow(self._prefix, task_id))


class _Submission:
    """One operation on its way to the present history of its task."""

    def __init__(self, thread: ServerThread, workflow: str, operation: TaskOperation, is_new: bool) -> None:
        self.is_refused = False
        """Whether the task had no room for it when it was last asked."""
        self._thread, self._workflow, self._operation = thread, workflow, operation
        self._document = dump_operation(operation)
        self._size = measure_payload(self._document)
        self._may_be_known = not is_new
        self._run: str | None = None
        """Of the history that it is sent to; None: the present one."""

    async def send(self) -> WorkflowUpdateHandle[Any] | None:
        """Returns once it was accepted; None: by an earlier history. May be repeated after any failure."""
        while True:
            if self._may_be_known:
                found = await read_former(self._thread.client, self._workflow, self._operation.id, _is_known)
                if found.value:
                    return None
                self._run = found.present
            self._may_be_known = True  # if this has no answer
            try:
                handle = await self._try_once()
            except RPCError as error:
                self.is_refused = error.status is RPCStatusCode.RESOURCE_EXHAUSTED
                is_former = error.status in _ABOUT_THE_HISTORY and await self._is_former()
                self._may_be_known = is_former or not self.is_refused
                if not is_former:
                    raise
                continue
            if handle is not None:
                return handle
            self._may_be_known, self.is_refused = False, True
            await asyncio.sleep(_NO_ROOM_PAUSE_S)

    async def _is_former(self) -> bool:
        """Whether the history that it was sent to has been replaced since it was looked up."""
        if self._run is None:
            return False
        present = await self._thread.client.get_workflow_handle(self._workflow).describe()
        return present.run_id != self._run

    async def _try_once(self) -> WorkflowUpdateHandle[Any] | None:
        """None if there is no room now."""
        task = self._thread.client.get_workflow_handle_for(TaskWorkflow.run, self._workflow, run_id=self._run)
        accepted, key = WorkflowUpdateStage.ACCEPTED, self._operation.id
        if self._size > LARGE_BYTES:
            wanted = {"id": key, "name": self._operation.name.value, "size": self._size}
            room = await task.start_update(TaskWorkflow.reserve, wanted, wait_for_stage=accepted)
            if _is_refused_for_now(room):
                return None
        handle = await task.start_update(TaskWorkflow.operate, self._document, id=key, wait_for_stage=accepted)
        return None if _is_refused_for_now(handle) else handle


def dump_operation(operation: TaskOperation) -> dict[str, Any]:
    """An operation as the workflow gets it. Raises: `quota_exceeded` for arguments that the server would refuse."""
    complete = complete_operation(operation)
    document = complete.model_dump(mode="json")
    size = measure_payload(document)
    if size > ARGUMENT_BYTES:
        raise SandboxError(
            ErrorCode.QUOTA_EXCEEDED,
            f"The arguments of '{operation.name}' have {size} bytes; at most {ARGUMENT_BYTES} pass through the cluster",
            hint="Ask for less at once: smaller patches, or fewer of them.",
        )
    return document


async def _is_known(update: WorkflowUpdateHandle[Any]) -> bool:
    """Whether a history has accepted an update, also one that failed."""
    with suppress(WorkflowUpdateFailedError):
        await update.result()
    return True


async def _read_result(update: Any, operation: TaskOperation) -> OperationAnswer:
    """Raises: `conflict`, `engine_unavailable`, `quota_exceeded` or `internal` if it was not carried out."""
    try:
        return read_answer(await update.result(), operation)
    except WorkflowUpdateFailedError as error:
        kind = error.cause.type if isinstance(error.cause, ApplicationError) else None
        code, reason = _FAILURES.get(kind or "", (ErrorCode.INTERNAL, None))
        raise SandboxError(
            code,
            f"Operation {operation.id} of {operation.task_id} could not be carried out",
            details=str(error.cause)[:1000],
            hint=_NO_PUBLISHER_HINT if kind == "no_publisher" else "`sandbox cluster workers` lists the workers.",
            reason=reason,
        ) from error


def _is_refused_for_now(handle: WorkflowUpdateHandle[Any]) -> bool:
    found = handle._known_outcome
    return found is not None and found.failure.application_failure_info.type == NO_ROOM


def _busy_task_error(operation: TaskOperation, wait_s: float) -> SandboxError:
    return SandboxError(
        ErrorCode.CONFLICT,
        f"{operation.task_id} has too many operations at once for '{operation.name}'",
        details=f"For {wait_s:.0f} s the others left no room for its arguments or its answer.",
        hint="Ask again when one of them has ended.",
        reason="task_busy",
    )
