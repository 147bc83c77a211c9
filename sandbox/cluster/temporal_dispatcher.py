"""Give tasks to the workers of a Temporal cluster."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from temporalio.api.taskqueue.v1 import TaskQueueStats
from temporalio.client import (
    Client,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.common import Priority, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from sandbox.cluster.answers import read_placement, unreadable_answer_error
from sandbox.cluster.dispatcher import (
    ANY_WORKER,
    PLACES_S,
    PlacementTerms,
    draw_task_id,
    name_fork,
    require_remote,
)
from sandbox.cluster.repository_key import make_repository_key
from sandbox.cluster.requirements import Requirements, list_unmet, require_worker
from sandbox.cluster.server_requests import SERVER_S, ServerRequests, make_server_error
from sandbox.cluster.server_thread import ServerThread
from sandbox.cluster.task_queues import (
    DRAIN_S,
    TaskStart,
    name_offer_queue,
    name_task_queue,
    name_worker_directory,
    name_worker_queue,
)
from sandbox.cluster.task_updates import QUERY, TaskUpdates, name_workflow
from sandbox.cluster.task_workflow import DrainWorkflow, TaskWorkflow
from sandbox.cluster.temporal_client import ClusterAddress
from sandbox.cluster.worker_directory import describe_queue, list_classes, list_readers, list_workers
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.operations import (
    OperationAnswer,
    OperationName,
    Placement,
    TaskOperation,
    TaskPriority,
    WaitingLine,
    WorkerDrain,
    WorkerInfo,
)
from sandbox.models.workers import PlaceState, TaskPlace

BUSY_S, NO_WORKER_S = 10.0, 60.0
"""How long a caller waits for a task without a worker: if all workers are busy, and if there is none."""

_PLACES_AT_ONCE = 16
_PRIORITIES = {TaskPriority.PERSON: 1, TaskPriority.AGENT: 3, TaskPriority.BATCH: 5}  # 3 is Temporal's default
_WAIT_ON = "The task keeps its place: ask for the same operation again to wait on, or cancel the operation."
_ResultT = TypeVar("_ResultT")


class TemporalDispatcher:
    """See `Dispatcher`. Thread-safe: one thread talks to the server for all callers."""

    def __init__(self, place: ClusterAddress) -> None:
        self._place = place
        self._requests = ServerRequests()
        self._thread = ServerThread(place)
        self._updates = TaskUpdates(self._thread, self._requests, place.name)

    @property
    def _client(self) -> Client:
        return self._thread.client

    def place(
        self, url: str, arguments: Mapping[str, Any], task_id: str = "", terms: PlacementTerms = ANY_WORKER
    ) -> OperationAnswer:
        """See `Dispatcher`."""
        require_remote(url)
        if terms.requirements:
            require_worker(self.workers(), terms.requirements)
        task = task_id or draw_task_id()
        create = TaskOperation(
            id="create", task_id=task, name=OperationName.CREATE, arguments={**arguments, "url": url}
        )
        self._wait(self._start(task, url, terms), create)
        self._wait(self._submit(create, is_new=not task_id), create)
        return self._wait_for_answer(create)

    async def _start(self, task: str, url: str, terms: PlacementTerms) -> None:
        key, prefix = make_repository_key(url), self._place.name
        readers = partial(list_readers, self._client, name_offer_queue(prefix, key))
        is_cloned = bool(key and await self._ask(readers))
        start = TaskStart(
            task, url, prefix, self._place.lost_after_s, repository=key, is_cloned=is_cloned,
            requirements=dict(terms.requirements), publisher_s=self._place.publisher_s,
        )  # fmt: skip
        await self._begin(start, _make_priority(terms, key), WorkflowIDReusePolicy.ALLOW_DUPLICATE)

    async def _begin(self, start: TaskStart, priority: Priority, reuse: WorkflowIDReusePolicy) -> None:
        """Begin the workflow of a task, unless it runs. `priority`: of all that the workflow asks for. `reuse`: whether
        one that has ended may begin again. Raises: `WorkflowAlreadyStartedError` if it may not.
        """
        begin = partial(
            self._client.start_workflow,
            TaskWorkflow.run,
            start,
            id=name_workflow(start.prefix, start.task_id),
            task_queue=_name_workflow_queue(start.prefix, start.requirements),
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=reuse,
            priority=priority,
        )
        await self._ask(begin)

    def submit(self, operation: TaskOperation, *, is_new: bool = False) -> None:
        """See `Dispatcher`."""
        self._wait(self._submit(operation, is_new=is_new), operation)

    async def _submit(self, operation: TaskOperation, *, is_new: bool) -> None:
        try:
            await self._updates.submit(operation, NO_WORKER_S, is_new=is_new)
        except TimeoutError as error:
            await self._requests.ask(self._list_workers, BUSY_S)  # or it is the server that does not answer
            raise _no_worker_error(operation.task_id) from error

    def result(self, operation: TaskOperation, wait_s: float | None = None) -> OperationAnswer | None:
        """See `Dispatcher`. Raises also: `internal` if no worker could carry it out."""
        if wait_s is None:
            return self._wait_for_answer(operation)
        return self._wait(self._result(operation, max(wait_s, 0.1)), operation)

    def _wait_for_answer(self, operation: TaskOperation) -> OperationAnswer:
        """Wait while a worker has the operation, and a moment for a worker."""
        began = time.monotonic()
        wait_s = BUSY_S
        while (answer := self._wait(self._result(operation, wait_s), operation)) is None:
            self._require_worker(operation, time.monotonic() - began)
            wait_s = min(2 * wait_s, NO_WORKER_S)
        return answer

    def _require_worker(self, operation: TaskOperation, waited_s: float) -> None:
        """Raises: `engine_unavailable` if the task waits for a worker: with its place in the line if some are busy."""
        placement = self._wait(self._find_placement(operation.task_id, BUSY_S), operation)
        if placement is not None and not placement.is_waiting:
            return
        was_away, workers = self._requests.is_away, self._wait(self._ask(self._list_workers), operation)
        if was_away:  # it is back, and the worker may be in a moment
            return
        required = placement.requirements if placement else {}
        able = [one for one in workers if one.id not in placement.lost] if placement else []
        if able:
            require_worker(able, required)
            place = self._count_line(able, required)
            raise SandboxError(
                ErrorCode.ENGINE_UNAVAILABLE,
                f"All workers of the cluster are busy; {operation.task_id} waits in the line",
                details=f"None has a free slot and room on its disk. Its place is about {place}. Workers: {len(able)}.",
                hint=_WAIT_ON,
                reason="cluster_busy",
                data={"task_id": operation.task_id, "operation_id": operation.id, "place": place, "workers": len(able)},
            )
        if waited_s >= NO_WORKER_S:
            raise _no_worker_error(operation.task_id)

    def _count_line(self, able: Sequence[WorkerInfo], required: Requirements) -> int:
        """About the place of the last task in the shortest line for these workers."""
        lines = self._read_lines(list_classes(able, required) if required else [""])
        return max(1, min((line.approximate_backlog_count for line in lines), default=1))

    def places(self, task_ids: Sequence[str]) -> Mapping[str, TaskPlace]:
        """See `Dispatcher`."""
        found = self._wait(self._find_placements(task_ids))
        workers = self.workers() if any(one.is_waiting for one in found.values()) else ()
        unknown = dict.fromkeys(task_ids, TaskPlace(state=PlaceState.UNKNOWN))
        counted: dict[str, int] = {}

        def describe(placement: Placement) -> TaskPlace:
            """Each line is counted once."""
            loss = {"loss": placement.loss, "lost_at": placement.lost_at}
            if not placement.is_waiting:
                return TaskPlace(state=PlaceState.ON_WORKER, worker=placement.worker or None, **loss)
            required = placement.requirements
            able = [one for one in workers if one.id not in placement.lost and not list_unmet(one, required)]
            line = repr(sorted(required.items()))
            if able and line not in counted:
                counted[line] = self._count_line(able, required)
            return TaskPlace(state=PlaceState.WAITING, place=counted.get(line), workers=len(able), **loss)

        return unknown | {task_id: describe(placement) for task_id, placement in found.items()}

    async def _find_placements(self, task_ids: Sequence[str]) -> dict[str, Placement]:
        """Of those that are said within `PLACES_S`."""
        turns = asyncio.Semaphore(_PLACES_AT_ONCE)

        async def find(task_id: str) -> Placement:
            async with turns:
                return await self._read_placement(self._handle(task_id), PLACES_S)

        asked = {asyncio.create_task(find(task_id)): task_id for task_id in task_ids}
        if asked:
            await asyncio.wait(asked, timeout=PLACES_S)
        for task in asked:
            task.cancel()
        answers = zip(asked.values(), await asyncio.gather(*asked, return_exceptions=True), strict=True)
        return {task_id: answer for task_id, answer in answers if isinstance(answer, Placement)}

    async def _find_placement(self, task_id: str, wait_s: float) -> Placement | None:
        """None if no worker answers in that time."""
        try:
            return await self._read_placement(self._handle(task_id), wait_s)
        except TimeoutError:
            return None
        except RPCError as error:
            if error.status is RPCStatusCode.FAILED_PRECONDITION:  # no worker was seen for minutes
                return None
            raise

    async def _result(self, operation: TaskOperation, wait_s: float) -> OperationAnswer | None:
        answer = await self._updates.result(operation, wait_s)
        if answer is not None and operation.name is OperationName.FORK and answer.error is None:
            await self._start_fork(operation, answer)
        return answer

    async def _start_fork(self, operation: TaskOperation, answer: OperationAnswer) -> None:
        """Give a fork to the worker that made it, with the requirements and the place in line of its parent. A
        second call has no effect, also if the fork has ended.
        """
        fork, prefix, parent = name_fork(operation), self._place.name, self._handle(operation.task_id)
        if not isinstance(answer.value, dict) or answer.value.get("id") != fork:
            raise unreadable_answer_error(answer.worker, f"Its value is no task {fork}.")
        try:
            placement = await self._read_placement(parent, NO_WORKER_S)
        except TimeoutError as error:
            raise _no_worker_error(operation.task_id) from error
        if not placement.url:
            raise unreadable_answer_error("a worker", "It does not say what a fork needs.")
        line = (await self._ask(parent.describe)).raw_description.workflow_execution_info.priority
        start = TaskStart(
            fork, placement.url, prefix, self._place.lost_after_s, worker=answer.worker, epoch=answer.epoch,
            is_created=True, repository=placement.repository, requirements=dict(placement.requirements),
            publisher_s=self._place.publisher_s,
        )  # fmt: skip
        priority = Priority(priority_key=line.priority_key or None, fairness_key=line.fairness_key or None)
        with suppress(WorkflowAlreadyStartedError):
            await self._begin(start, priority, WorkflowIDReusePolicy.REJECT_DUPLICATE)

    def cancel(self, operation: TaskOperation) -> None:
        """See `Dispatcher`."""
        stop = partial(self._handle(operation.task_id).signal, TaskWorkflow.cancel, operation.id)
        self._wait(self._ask(stop), operation)
        try:
            self.result(operation)
        except SandboxError as error:
            if error.reason != "cancelled":
                raise

    def find_placement(self, task_id: str) -> Mapping[str, Any]:
        """Which worker has a task, its epoch, the workers that were lost, and whether it waits for a worker with a free
        slot. Raises: `not_found`, `engine_unavailable` if no worker answers; `network_error`.
        """
        placement = self._wait(self._find_placement(task_id, NO_WORKER_S))
        if placement is None and self._requests.is_away:
            raise make_server_error(self._place.address, TimeoutError("no answer"), None)
        if placement is None:
            raise _no_worker_error(task_id)
        return placement.model_dump()

    async def _read_placement(self, task: WorkflowHandle[Any, Any], wait_s: float) -> Placement:
        """Raises: `TimeoutError` if no worker answers in that time."""
        ask = partial(task.query, TaskWorkflow.placement, rpc_timeout=QUERY)
        return read_placement(await self._requests.ask(ask, wait_s))

    def workers(self) -> tuple[WorkerInfo, ...]:
        """See `Dispatcher`. A worker that was killed is listed until Temporal forgets it, for up to five minutes."""
        return self._wait(self._ask(self._list_workers))

    async def _list_workers(self) -> tuple[WorkerInfo, ...]:
        return await list_workers(self._client, self._place.name)

    def drain(self, worker_id: str) -> WorkerDrain:
        """See `Dispatcher`."""
        if worker_id not in {worker.id for worker in self.workers()}:
            raise _unknown_worker_error(worker_id, "It reads no queue of the cluster.")
        return WorkerDrain(worker=worker_id, operations=self._wait(self._drain(worker_id)))

    async def _drain(self, worker_id: str) -> int:
        begin = partial(
            self._client.start_workflow,
            DrainWorkflow.run,
            name_worker_queue(self._place.name, worker_id),
            id=f"{self._place.name}-drain-{worker_id}",
            task_queue=name_task_queue(self._place.name),
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            execution_timeout=timedelta(seconds=DRAIN_S),
        )
        try:
            return await self._ask((await self._ask(begin)).result)
        except WorkflowFailureError as error:
            raise _unknown_worker_error(worker_id, f"It did not answer: {error.cause}") from error

    def line(self) -> WaitingLine:
        """See `Dispatcher`. A task that waits for workers of several classes is counted for each."""
        workers = self.workers()
        lines = self._read_lines(["", *list_classes(workers, {})])
        ages = [line.approximate_backlog_age.ToTimedelta().total_seconds() for line in lines]
        tasks = sum(line.approximate_backlog_count for line in lines)
        return WaitingLine(tasks=tasks, oldest_s=max(ages), workers=len(workers))

    def _read_lines(self, classes: Iterable[str]) -> list[TaskQueueStats]:
        """Temporal's counts of the offers that wait for a worker with a free slot, in the lines of these classes of
        workers; empty: in the line of all workers.
        """
        queues = [name_offer_queue(self._place.name, key) for key in classes]
        return [self._wait(self._ask(partial(describe_queue, self._client, queue))).stats for queue in queues]

    def close(self) -> None:
        """See `Dispatcher`."""
        self._thread.close()

    def _handle(self, task_id: str) -> WorkflowHandle[TaskWorkflow, None]:
        return self._client.get_workflow_handle_for(TaskWorkflow.run, name_workflow(self._place.name, task_id))

    async def _ask(self, request: Callable[[], Awaitable[_ResultT]]) -> _ResultT:
        """The answer to a request that may be repeated, and is answered at once by a server that is there."""
        return await self._requests.ask(request, 2 * SERVER_S)

    def _wait(self, work: Coroutine[Any, Any, _ResultT], operation: TaskOperation | None = None) -> _ResultT:
        """`operation`: what it is about."""
        try:
            return self._thread.wait(work)
        except (RPCError, TimeoutError) as error:
            raise make_server_error(self._place.address, error, operation) from error


def _name_workflow_queue(prefix: str, requirements: Requirements) -> str:
    return name_worker_directory(prefix) if requirements else name_task_queue(prefix)


def _unknown_worker_error(worker_id: str, why: str) -> SandboxError:
    return SandboxError(
        ErrorCode.NOT_FOUND,
        f"No worker {worker_id[:100]!a} takes tasks",
        details=why[:500],
        hint="`sandbox cluster workers` lists the workers; one that was killed is listed for some minutes.",
    )


def _no_worker_error(task_id: str) -> SandboxError:
    return SandboxError(
        ErrorCode.ENGINE_UNAVAILABLE,
        f"No worker can take {task_id}",
        details="None answers that did not have it before.",
        hint=f"Start one: `sandbox cluster workers` lists those that there are. {_WAIT_ON}",
        reason="no_worker",
    )


def _make_priority(terms: PlacementTerms, repository: str) -> Priority:
    key = hashlib.sha256(terms.owner.encode()).hexdigest()[:16] if terms.owner else repository
    return Priority(priority_key=_PRIORITIES[terms.priority], fairness_key=key or None)
