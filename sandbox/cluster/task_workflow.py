"""The durable part of a task on a cluster: which worker has it, its epoch, and the answers that were given.

Theory. A task is one workflow. Its operations are updates, carried out one after another by the worker that has the
task, over a queue of that worker's own; reading ones may overtake. When the worker stops answering, the task gets the
next epoch and another worker, which continues from the hub; the operation is then carried out there, under the new
epoch. The hub refuses what the lost worker still sends, so an operation counts at most once in each epoch and only the
last epoch counts. Temporal may run this code again from its history: it is pure but for the activities.

A task is offered first to the workers that have the repository's clone, for a moment, then to all. A worker that has no
free slot does not read offers, so the task then waits in the line of the shared queue. Operations that need a worker at
the same time search for one together.

A task that requires something waits in the line of each class of workers that has it (`sandbox.cluster.announcement`),
and a worker checks it once more. Its workflow is on the queue of the worker directory, which workers that do not
know of requirements do not read.

This module does not import the rest of the package, because Temporal loads it in a sandbox of its own.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    TimeoutError,
    TimeoutType,
    is_cancelled_exception,
)

PERFORM, OFFER, TAKE_OVER, DRAIN = "perform", "offer", "take-over", "drain"
FIND_CLASSES, PUBLISH = "find-classes", "publish"
READS = frozenset({"read-file", "search", "status", "diff", "list-checks", "list-snapshots", "pr-status"})
READS_OF_RUNS = frozenset({"list-runs", "find-run", "run-log", "read-log", "test-results", "usage", "journal"})
"""Reading ones of a later version, which before it waited for their turn to be refused (`_LOOKS_AT_RUNS`)."""

PUBLISHES = frozenset({"push", "open-pr", "pr-status"})
"""Carried out by a controller that publishes, not by the worker that has the task."""

KEPT_ANSWERS = 200
_MOVES = 3
_OPERATION_S = 24 * 3600.0
PREFER_S = 2.0
"""How long a task is offered only to workers that have the clone. A free one answers within milliseconds."""

LINE_S = 3600.0
"""How long a task waits for a worker with a free slot; reached: the operation fails."""

CLASSES_S = 30.0
"""After how long a task that waits is put into the lines of classes that there were not before."""

PUBLISHER_S = 30.0
"""How long a controller that publishes may not take an operation; reached: the operation fails. The default."""

DRAIN_S = 20.0
"""How long a worker that is to end may not answer; reached: it counts as unknown."""

_PREFERS_CLONES = "offers-of-a-repository"
"""The change of this workflow since which a task prefers a clone, its operations search for a worker together, and one
that waits can be cancelled. Tasks that began before do as they did.
"""

_LOOKS_AT_RUNS = "looks-at-runs"
"""The change since which `READS_OF_RUNS` overtake. Asked about only for these: a task that nobody asked for them has
no mark of it, so workers of both versions may do its steps.
"""

_CANCELS_EARLY = "cancels-early"
"""The change since which an operation that was cancelled when no worker had it does not begin. Before it a cancellation
was forgotten while the operation waited for its turn, or for the files of its task on another worker. Asked about only
for cancelled operations.
"""

_MOST_CLASSES = 16  # each is one more offer; those with the most workers come first
_ACCEPTED_S = 5.0  # an offer that a worker has read is answered at once, unless the worker has ended
_ONCE = RetryPolicy(maximum_attempts=1)
_OFFERS = RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=2))
_LOST = {TimeoutType.HEARTBEAT, TimeoutType.SCHEDULE_TO_START}
_LOSS = (
    "{worker} was lost. The task continues on {successor} from its last completed operation; what an operation in "
    "progress had changed is lost."
)


def name_worker_queue(prefix: str, worker: str) -> str:
    """The queue that only this worker reads."""
    return f"{prefix}-{worker}"


def name_offer_queue(prefix: str, repository: str = "") -> str:
    """The queue of offers that all workers read; that of a repository's key is read by those that have its clone."""
    return f"{prefix}-offers-{repository}" if repository else f"{prefix}-offers"


def name_task_queue(prefix: str) -> str:
    """The queue of workflows without requirements."""
    return f"{prefix}-tasks"


def name_worker_directory(prefix: str) -> str:
    """The queue of workflows that require something. Workers read it under an identity that says what they can do."""
    return f"{prefix}-workers"


def name_publish_queue(prefix: str) -> str:
    """The queue that the controllers that publish read."""
    return f"{prefix}-publish"


@dataclass
class TaskStart:
    """`lost_after_s`: how long a worker may be silent. `repository`: the key of the repository; empty: a task of an
    earlier version, which goes to any worker. `is_cloned`: whether a worker may have its clone. `requirements`: of a
    worker. `publisher_s`: see `PUBLISHER_S`. The rest is set when a long history is begun anew.
    """

    task_id: str
    url: str
    prefix: str
    lost_after_s: float = 10.0
    worker: str = ""
    epoch: int = 0
    is_created: bool = False
    lost: list[str] = field(default_factory=list)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    repository: str = ""
    is_cloned: bool = True
    requirements: dict[str, str] = field(default_factory=dict)
    publisher_s: float = PUBLISHER_S


@workflow.defn(name="space-sandbox-task")
class TaskWorkflow:
    """See the module."""

    @workflow.init
    def __init__(self, start: TaskStart) -> None:
        self._task = start
        self._turn = asyncio.Lock()
        self._placing = asyncio.Lock()
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._asked: set[str] = set()
        self._cancelled: set[str] = set()
        self._is_closed = False
        self._is_waiting = False

    @workflow.run
    async def run(self, _start: TaskStart) -> None:
        """Live until the task is closed; a long history is replaced by a new one with the same state."""
        await workflow.wait_condition(lambda: self._is_closed or workflow.info().is_continue_as_new_suggested())
        await workflow.wait_condition(workflow.all_handlers_finished)
        if not self._is_closed:
            workflow.continue_as_new(self._task)

    @workflow.update
    async def operate(self, operation: dict[str, Any]) -> dict[str, Any]:
        """Carry out an operation; the answer of an earlier one with the same id."""
        self._asked.add(operation["id"])
        try:
            if _overtakes(operation["name"]):
                return await self._carry_out(operation)
            async with self._turn:
                known = self._task.answers.get(operation["id"])
                return known or self._remember(operation, await self._carry_out(operation))
        finally:
            self._asked.discard(operation["id"])
            self._cancelled.discard(operation["id"])

    @workflow.signal
    def cancel(self, operation_id: str) -> None:
        """End the checks of an operation in progress. One that waits for a worker leaves the line; one that waits for
        its turn or for a move of its task does not begin.
        """
        if operation_id in self._asked:
            self._cancelled.add(operation_id)
        if handle := self._running.get(operation_id):
            handle.cancel()

    @workflow.query
    def placement(self) -> dict[str, Any]:
        """Which worker has the task, and for which epoch; whether it waits for one in the line of the shared queue.
        Also what a fork of the task has in common with it.
        """
        return {
            "worker": self._task.worker,
            "epoch": self._task.epoch,
            "lost": self._task.lost,
            "is_waiting": self._is_waiting,
            "requirements": self._task.requirements,
            "url": self._task.url,
            "repository": self._task.repository,
        }

    def _remember(self, operation: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        answers = self._task.answers
        answers[operation["id"]] = answer
        while len(answers) > KEPT_ANSWERS:
            del answers[next(iter(answers))]
        succeeded = "error" not in answer
        self._task.is_created |= succeeded and operation["name"] == "create"
        self._is_closed |= succeeded and operation["name"] == "close"
        return answer

    async def _carry_out(self, operation: dict[str, Any]) -> dict[str, Any]:
        if operation["name"] in PUBLISHES:
            return await self._publish({**operation, "epoch": max(1, self._task.epoch)})
        loss = ""
        for _ in range(_MOVES):
            self._require_not_cancelled(operation["id"])
            if not self._task.worker:
                await self._ensure_worker(operation["id"])
                self._require_not_cancelled(operation["id"])
            worker = self._task.worker
            try:
                answer = await self._perform({**operation, "epoch": self._task.epoch})
            except ActivityError as error:
                if not _is_loss(error):
                    raise ApplicationError(f"The worker failed: {error.cause}", non_retryable=True) from error
                loss = await self._replace_worker(worker, operation["id"])
                continue
            return {**answer, "lost": loss} if loss else answer
        raise ApplicationError(f"{_MOVES} workers were lost during one operation", non_retryable=True)

    def _require_not_cancelled(self, operation_id: str) -> None:
        if operation_id in self._cancelled and workflow.patched(_CANCELS_EARLY):
            raise _cancellation_error()

    async def _perform(self, operation: dict[str, Any]) -> dict[str, Any]:
        silent_s = self._task.lost_after_s / 2
        queue = name_worker_queue(self._task.prefix, self._task.worker)
        return await self._await_answer(operation["id"], (PERFORM, operation), queue, silent_s, silent_s)

    async def _publish(self, operation: dict[str, Any]) -> dict[str, Any]:
        start_s = self._task.publisher_s
        silent_s = max(start_s, self._task.lost_after_s)
        asked = (PUBLISH, {"url": self._task.url, "operation": operation})
        queue = name_publish_queue(self._task.prefix)
        try:
            return await self._await_answer(operation["id"], asked, queue, start_s, silent_s)
        except ActivityError as error:
            if not _is_loss(error):
                text = f"The controller that publishes failed: {error.cause}"
                raise ApplicationError(text, non_retryable=True) from error
            if isinstance(error.cause, TimeoutError) and error.cause.type is TimeoutType.HEARTBEAT:
                text = "The controller that publishes was lost; its data may have been sent"
            else:
                text = f"No controller that publishes took it within {start_s:.0f} s; no data was sent"
            raise ApplicationError(text, type="no_publisher", non_retryable=True) from error

    async def _await_answer(
        self, operation_id: str, asked: tuple[str, dict[str, Any]], queue: str, start_s: float, silent_s: float
    ) -> dict[str, Any]:
        """The answer of an activity, which can be cancelled. `asked`: its name and argument. `start_s`: until it is
        taken; `silent_s`: between its heartbeats.
        """
        name, argument = asked
        handle: workflow.ActivityHandle[dict[str, Any]] = workflow.start_activity(
            name,
            argument,
            task_queue=queue,
            schedule_to_start_timeout=timedelta(seconds=start_s),
            heartbeat_timeout=timedelta(seconds=silent_s),
            start_to_close_timeout=timedelta(seconds=_OPERATION_S),
            retry_policy=_ONCE,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        self._running[operation_id] = handle
        try:
            return await handle
        except ActivityError as error:
            if is_cancelled_exception(error):  # no worker had taken it
                raise _cancellation_error() from error
            raise
        finally:
            self._running.pop(operation_id, None)

    async def _replace_worker(self, lost: str, waiting: str) -> str:
        """Give the task to another worker, if that was not done. Several operations may notice one loss."""
        if not workflow.patched(_PREFERS_CLONES):
            lost = self._task.worker
        if lost and lost not in self._task.lost:
            self._task.lost.append(lost)
            self._task.worker = ""
        if not self._task.worker:
            await self._ensure_worker(waiting)
        return _LOSS.format(worker=lost, successor=self._task.worker)

    async def _ensure_worker(self, waiting: str) -> None:
        """`waiting`: the id of the operation that needs a worker."""
        if not workflow.patched(_PREFERS_CLONES):
            await self._place(waiting)
            return
        async with self._placing:
            if not self._task.worker:
                await self._place(waiting)

    async def _place(self, waiting: str) -> None:
        self._task.epoch += 1
        epoch = self._task.epoch
        while True:
            worker = await self._find_worker(waiting)
            if not self._task.is_created or await self._take_over(worker, epoch):
                self._task.worker = worker
                self._task.is_cloned = True
                return
            self._task.lost.append(worker)

    async def _find_worker(self, waiting: str) -> str:
        prefers_clone = workflow.patched(_PREFERS_CLONES) and self._task.repository and self._task.is_cloned
        if prefers_clone and (worker := await self._offer(waiting, self._task.repository, PREFER_S)):
            return worker
        self._is_waiting = True
        try:
            if self._task.requirements:
                worker = await self._search(waiting)
            else:
                worker = await self._offer(waiting, "", LINE_S)
        finally:
            self._is_waiting = False
        if not worker:
            text = f"No worker that did not have the task before offered to take it within {LINE_S:.0f} s"
            raise ApplicationError(text, type="no_worker", non_retryable=True)
        return worker

    async def _offer(self, waiting: str, repository: str, limit_s: float) -> str:
        """The worker that takes the task; empty if none does. The operation that waits for it can be cancelled."""
        handle = self._start_offer(repository, limit_s)
        if workflow.patched(_PREFERS_CLONES):
            self._running[waiting] = handle
        try:
            return str((await handle)["worker"])
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise _cancellation_error() from error
            return ""
        finally:
            self._running.pop(waiting, None)

    def _start_offer(self, queue: str, limit_s: float) -> workflow.ActivityHandle[dict[str, Any]]:
        """`queue`: a repository's key, or a class of workers."""
        required = (self._task.requirements,) if self._task.requirements else ()
        return workflow.start_activity(
            OFFER,
            args=(self._task.lost, *required),
            task_queue=name_offer_queue(self._task.prefix, queue),
            schedule_to_close_timeout=timedelta(seconds=limit_s),
            start_to_close_timeout=timedelta(seconds=min(limit_s, _ACCEPTED_S)),
            retry_policy=_OFFERS,
        )

    async def _search(self, waiting: str) -> str:
        """As `_offer`, in the lines of all classes that meet the requirements. Several may take the task at once: the
        first one has it, and the others keep a slot for it in vain for some seconds.
        """
        search = asyncio.create_task(self._wait_in_lines())
        self._running[waiting] = search
        try:
            return await search
        except asyncio.CancelledError as error:
            if not search.cancelled():  # the workflow itself ends
                raise
            raise _cancellation_error() from error
        except ActivityError as error:  # of the question for classes
            if is_cancelled_exception(error):
                raise _cancellation_error() from error
            return ""
        finally:
            self._running.pop(waiting, None)

    async def _wait_in_lines(self) -> str:
        offers: dict[str, workflow.ActivityHandle[dict[str, Any]]] = {}
        end = workflow.now() + timedelta(seconds=LINE_S)
        try:
            while workflow.now() < end:
                for key in await self._find_classes():
                    if key not in offers or offers[key].done():
                        offers[key] = self._start_offer(key, LINE_S)
                if worker := await _first_taker([*offers.values()]):
                    return worker
        finally:
            for offer in offers.values():
                offer.cancel()
        return ""

    async def _find_classes(self) -> list[str]:
        found: list[str] = await workflow.execute_activity(
            FIND_CLASSES,
            self._task.requirements,
            task_queue=name_worker_directory(self._task.prefix),
            schedule_to_close_timeout=timedelta(seconds=LINE_S),
            start_to_close_timeout=timedelta(seconds=_ACCEPTED_S),
            retry_policy=_OFFERS,
            result_type=list,
        )
        return found[:_MOST_CLASSES]

    async def _take_over(self, worker: str, epoch: int) -> bool:
        try:
            await workflow.execute_activity(
                TAKE_OVER,
                {"url": self._task.url, "task_id": self._task.task_id, "epoch": epoch},
                task_queue=name_worker_queue(self._task.prefix, worker),
                schedule_to_start_timeout=timedelta(seconds=self._task.lost_after_s / 2),
                heartbeat_timeout=timedelta(seconds=self._task.lost_after_s / 2),
                start_to_close_timeout=timedelta(hours=1),
                retry_policy=_ONCE,
            )
        except ActivityError as error:
            if _is_loss(error) or (isinstance(error.cause, ApplicationError) and error.cause.type == "task_exists"):
                return False
            raise ApplicationError(f"The task cannot continue elsewhere: {error.cause}", non_retryable=True) from error
        return True


@workflow.defn(name="space-sandbox-drain")
class DrainWorkflow:
    """Tells a worker to take no more tasks, and to end once its operations have ended."""

    @workflow.run
    async def run(self, queue: str) -> int:
        """`queue`: that only this worker reads. How many operations are in progress on it."""
        return int(
            await workflow.execute_activity(
                DRAIN,
                task_queue=queue,
                schedule_to_start_timeout=timedelta(seconds=DRAIN_S / 2),
                start_to_close_timeout=timedelta(seconds=DRAIN_S / 2),
                retry_policy=_ONCE,
                result_type=int,
            )
        )


def _overtakes(name: str) -> bool:
    return name in READS or (name in READS_OF_RUNS and workflow.patched(_LOOKS_AT_RUNS))


def _is_loss(error: ActivityError) -> bool:
    return isinstance(error.cause, TimeoutError) and error.cause.type in _LOST


def _cancellation_error() -> ApplicationError:
    return ApplicationError(
        "The operation was cancelled while it waited for a worker", type="cancelled", non_retryable=True
    )


async def _first_taker(offers: list[workflow.ActivityHandle[dict[str, Any]]]) -> str:
    """The worker that took the first of these offers within `CLASSES_S`; empty if no worker did."""
    pending = [offer for offer in offers if not offer.done()]
    if not pending:
        await workflow.sleep(CLASSES_S)
        return ""
    done, _ = await workflow.wait(pending, timeout=CLASSES_S, return_when=asyncio.FIRST_COMPLETED)
    for offer in done:
        if not offer.cancelled() and offer.exception() is None:
            return str(offer.result()["worker"])
    return ""
