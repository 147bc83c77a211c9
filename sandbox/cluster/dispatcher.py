"""Give tasks to workers, and operations to the worker that has the task. Callers do not know which dispatcher it is."""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from typing import Any, Protocol

from sandbox.cluster.done_operations import digest_operation
from sandbox.cluster.operation_table import OPERATIONS
from sandbox.cluster.requirements import Requirements, require_worker
from sandbox.cluster.worker import ClusterWorker
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.operations import (
    OperationAnswer,
    OperationName,
    TaskOperation,
    TaskPriority,
    WaitingLine,
    WorkerDrain,
    WorkerInfo,
)
from sandbox.models.workers import PlaceState, TaskPlace
from sandbox.remotes import parse_remote
from sandbox.store.operation_answers import other_operation_error


@dataclass(frozen=True)
class PlacementTerms:
    """Which worker a task needs, and where it waits if all workers are busy. `requirements`: of the worker. `owner`:
    for whom the task is; owners of one priority take turns. Empty: the repository.
    """

    priority: TaskPriority = TaskPriority.AGENT
    owner: str = ""
    requirements: Requirements = field(default_factory=dict)


ANY_WORKER = PlacementTerms()

PLACES_S = 2.0
"""How long is waited for what workers say of the places of tasks. What has been said by then counts."""

ALL_PLACES_S = PLACES_S + 3.0
"""How long a caller waits for it in all, with the connection and the counts of the line."""


class Dispatcher(Protocol):
    """Places tasks and carries operations. An operation that changes a task has one answer for its id, however often it
    is submitted. Operations of one task run one after another, reading ones aside.
    """

    def place(
        self, url: str, arguments: Mapping[str, Any], task_id: str = "", terms: PlacementTerms = ANY_WORKER
    ) -> OperationAnswer:
        """Create a task on a worker of the dispatcher's choice; the value of the answer is the task.

        `arguments`: `prompt`, `base_branch`, `profile`, `workspace_kind`. `task_id`: of an earlier call, to repeat it.

        Raises: `invalid_input` for what is no URL of a repository, or has a password in it, which is then not sent;
        `engine_unavailable`. With `reason` `requirements_unmet` no worker meets the requirements, and no task
        is created; with `cluster_busy` (and its place in the line) or `no_worker` it waits on, and the same call waits
        for it.
        """
        ...

    def submit(self, operation: TaskOperation, *, is_new: bool = False) -> None:
        """Start an operation and return. Its epoch is set by the dispatcher. `fork` without the argument `fork_id` gets
        one, the same for the same operation. `is_new`: the caller has just drawn its id, so it was never submitted, and
        is not looked for. Raises: `not_found` for the task; `conflict` for another operation of this id, if that is
        known here: else its answer says so (`require_answer_to`).
        """
        ...

    def result(self, operation: TaskOperation, wait_s: float | None = None) -> OperationAnswer | None:
        """The answer of a submitted operation; None if there is none after `wait_s`. A fork takes operations from then
        on: ask again for a `fork` that was not answered, with the same id. Raises: `not_found`; `conflict`
        (`reason`: `cancelled`) if it was cancelled before a worker had it; without `wait_s` as `place`.
        """
        ...

    def cancel(self, operation: TaskOperation) -> None:
        """End the checks of an operation. Returns when no container of it runs; the answer has the verdict. One that
        waits for a worker leaves the line.
        """
        ...

    def workers(self) -> tuple[WorkerInfo, ...]:
        """The workers that can be given tasks now."""
        ...

    def places(self, task_ids: Sequence[str]) -> Mapping[str, TaskPlace]:
        """Where each of these tasks is, `unknown` if that is not said within seconds."""
        ...

    def drain(self, worker_id: str) -> WorkerDrain:
        """Let a worker take no more tasks, and end once its operations have ended. Its tasks continue on others.

        Raises: `not_found` if it does not answer; `invalid_input` for the worker of this process.
        """
        ...

    def line(self) -> WaitingLine:
        """The tasks that wait for a worker."""
        ...

    def close(self) -> None:
        """Let go of connections and threads. Operations in progress here are waited for; on a cluster they go on, and
        who waits for them gets `make_closed_error`.
        """
        ...


def require_remote(url: str) -> None:
    """Raises: `invalid_input` for a URL that no worker would take. A server keeps all that it is sent."""
    parse_remote(url, allow_file=True, allow_http=True)


def make_closed_error() -> SandboxError:
    """For a thread that waits for a cluster, or asks it, when this process closes the connection."""
    return SandboxError(
        ErrorCode.NETWORK_ERROR,
        "This process closed its connection to the cluster",
        details="A request that was in progress may be carried out all the same.",
        hint="Ask again.",
        reason="connection_closed",
    )


def draw_task_id() -> str:
    """The id of a new task."""
    return f"task-{uuid.uuid4()}"


def name_fork(operation: TaskOperation) -> str:
    """The id of the task that an operation `fork` makes: the caller's, or one that follows from the operation's id."""
    if given := operation.arguments.get("fork_id"):
        return str(given)
    digest = hashlib.sha256(f"{operation.task_id} {operation.id}".encode()).digest()
    return f"task-{uuid.UUID(bytes=digest[:16], version=4)}"


def complete_operation(operation: TaskOperation) -> TaskOperation:
    """With the id of the new task, if it makes one."""
    if operation.name is not OperationName.FORK:
        return operation
    return operation.model_copy(update={"arguments": {**operation.arguments, "fork_id": name_fork(operation)}})


def require_answer_to(answer: OperationAnswer, operation: TaskOperation) -> None:
    """For a caller that chose the id itself: it may have been that of another operation, which is not carried out then.

    Raises: `conflict`.
    """
    if answer.digest not in {None, digest_operation(complete_operation(operation))}:
        raise other_operation_error(operation)


class LocalDispatcher:
    """The worker of this process. Needs no server and no hub; its tasks end with this process."""

    def __init__(self, worker: ClusterWorker, threads: int = 32) -> None:
        self._worker = worker
        self._pool = ThreadPoolExecutor(threads, "dispatch")
        self._running: dict[tuple[str, str], _Running] = {}
        self._last_change: dict[str, Future[OperationAnswer]] = {}
        self._lock = threading.Lock()

    def place(
        self, url: str, arguments: Mapping[str, Any], task_id: str = "", terms: PlacementTerms = ANY_WORKER
    ) -> OperationAnswer:
        """See `Dispatcher`. There is no line."""
        require_remote(url)
        if terms.requirements:
            require_worker((self._worker.describe(),), terms.requirements)
        create = TaskOperation(
            id="create",
            task_id=task_id or draw_task_id(),
            name=OperationName.CREATE,
            arguments={**arguments, "url": url},
        )
        return self._worker.perform(create)

    def submit(self, operation: TaskOperation, *, is_new: bool = False) -> None:
        """See `Dispatcher`."""
        asked = complete_operation(operation).model_copy(update={"epoch": 1})
        key = (operation.task_id, operation.id)
        with self._lock:
            if key not in self._running:
                self._worker.workbench.task(operation.task_id)  # raises for an unknown one
                self._running[key] = self._begin(asked)
            elif self._running[key].operation != asked:
                raise other_operation_error(operation)

    def _begin(self, operation: TaskOperation) -> _Running:
        """Changes of a task take turns in the order in which they were asked for. The pool begins them in this order,
        too, so the one that another one waits for has always begun.
        """
        stop, is_change = threading.Event(), OPERATIONS[operation.name].changes
        before = self._last_change.get(operation.task_id) if is_change else None

        def perform() -> OperationAnswer:
            if before is not None:
                wait([before])
                if stop.is_set():
                    raise _cancelled_error(operation)
            return self._worker.perform(operation, stop.is_set)

        done = self._pool.submit(perform)
        if is_change:
            self._last_change[operation.task_id] = done
        return _Running(operation, done, stop.set)

    def result(self, operation: TaskOperation, wait_s: float | None = None) -> OperationAnswer | None:
        """See `Dispatcher`."""
        try:
            return self._find(operation).done.result(wait_s)
        except FutureTimeoutError:
            return None

    def cancel(self, operation: TaskOperation) -> None:
        """See `Dispatcher`."""
        running = self._find(operation)
        running.stop()
        wait([running.done])

    def workers(self) -> tuple[WorkerInfo, ...]:
        """See `Dispatcher`."""
        return (self._worker.describe().model_copy(update={"address": "this process"}),)

    def places(self, task_ids: Sequence[str]) -> Mapping[str, TaskPlace]:
        """See `Dispatcher`. They are here."""
        return dict.fromkeys(task_ids, TaskPlace(state=PlaceState.ON_WORKER, worker=self._worker.id))

    def drain(self, worker_id: str) -> WorkerDrain:
        """See `Dispatcher`."""
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"{worker_id[:100]!a} is no worker of a cluster",
            hint="Without cluster.address this process is the only worker, and ends by itself.",
        )

    def line(self) -> WaitingLine:
        """See `Dispatcher`. There is none."""
        return WaitingLine(workers=1)

    def close(self) -> None:
        """See `Dispatcher`."""
        self._pool.shutdown()

    def _find(self, operation: TaskOperation) -> _Running:
        with self._lock:
            running = self._running.get((operation.task_id, operation.id))
        if running is None:
            raise SandboxError(
                ErrorCode.NOT_FOUND, f"Operation {operation.id} of {operation.task_id} was not submitted here"
            )
        return running


def _cancelled_error(operation: TaskOperation) -> SandboxError:
    return SandboxError(
        ErrorCode.CONFLICT,
        f"Operation {operation.id} of {operation.task_id} was cancelled before its turn",
        reason="cancelled",
    )


class _Running:
    def __init__(self, operation: TaskOperation, done: Future[OperationAnswer], stop: Callable[[], None]) -> None:
        self.operation = operation
        self.done = done
        self.stop = stop
