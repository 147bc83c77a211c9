"""Which worker has a task: finds one, and another one when that is lost. A part of the workflow of a task.

Theory. A task is offered first to the workers that have the repository's clone, for a moment, then to all. A worker
that has no free slot does not read offers, so the task then waits in the line of the shared queue. Operations that need
a worker at the same time search for one together.

A task that requires something waits in the line of each class of workers that has it (`sandbox.cluster.announcement`),
and a worker checks it once more.

As the workflow, this module does not import the rest of the package, and it is pure but for the activities.
"""

from __future__ import annotations

import asyncio
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

from sandbox.cluster.task_queues import (
    ANOTHER_WORKER,
    EPOCH_ENDED,
    FIND_CLASSES,
    LOSS,
    OF_ONE_WORKER,
    OFFER,
    TAKE_OVER,
    TASK_EXISTS,
    TaskStart,
    name_offer_queue,
    name_worker_directory,
    name_worker_queue,
)

PREFER_S = 1.5
"""How long a task is offered only to workers that have the clone. A free one answers within milliseconds."""

OTHERS_S = 6.0
"""How long a task is offered only to workers that did not lose it. Then one that was restarted may take it again."""

LINE_S = 3600.0
"""How long a task waits for a worker with a free slot; reached: the operation fails."""

CLASSES_S = 30.0
"""After how long a task that waits is put into the lines of classes that there were not before."""

_PREFERS_CLONES = "offers-of-a-repository"
"""The change of this workflow since which a task prefers a clone, its operations search for a worker together, and one
that waits can be cancelled. Tasks that began before do as they did.
"""

_TAKES_AGAIN = "takes-again"
"""The change since which a worker may take a task that it lost. Asked about only for a task that a worker lost."""

_ASKS_OTHERS = "asks-others"
"""The change since which others are asked after a worker for which the epoch has ended, or which cannot reach the hub.
Asked about only then: before it the operation failed.
"""

_MOST_ENDED = 8
"""How many epochs are tried in one search; reached: the operation fails. Another writer to the hub can end any."""

_MOST_CLASSES = 16  # each is one more offer; those with the most workers come first
_ACCEPTED_S = 5.0  # an offer that a worker has read is answered at once, unless the worker has ended
ONCE = RetryPolicy(maximum_attempts=1)
"""What a worker does is never done again by Temporal."""

_OFFERS = RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=2))
_LOST = {TimeoutType.HEARTBEAT, TimeoutType.SCHEDULE_TO_START}


class TaskPlacement:
    """`task`: this changes its worker, epoch and lost workers. `running`: what can be cancelled, by operation."""

    def __init__(self, task: TaskStart, running: dict[str, asyncio.Task[Any]]) -> None:
        self._task, self._running = task, running
        self._placing = asyncio.Lock()
        self.is_waiting = False

    async def replace_worker(self, lost: str, epoch: int, waiting: str) -> str:
        """Give the task to another worker, if that was not done. Several operations may notice one loss, which is that
        of an epoch: by now the same worker may have the task again.
        """
        if not workflow.patched(_PREFERS_CLONES):
            lost, epoch = self._task.worker, self._task.epoch
        if lost and epoch == self._task.epoch:
            self._add_lost(lost)
            self._task.worker = ""
            self._note_loss(LOSS.format(worker=lost, successor=ANOTHER_WORKER))  # the search may fail
        if not self._task.worker:
            await self.ensure_worker(waiting)
        loss = LOSS.format(worker=lost, successor=self._task.worker)
        self._note_loss(loss)
        return loss

    def _note_loss(self, loss: str) -> None:
        if loss != self._task.loss:  # else another operation noticed it, too
            self._task.loss, self._task.lost_at = loss, workflow.now().isoformat()

    async def ensure_worker(self, waiting: str) -> str:
        """What the task lost before, if this ended a search that an earlier operation began; else empty. `waiting`: the
        id of the operation that needs a worker.
        """
        if not workflow.patched(_PREFERS_CLONES):
            return await self._place(waiting)
        async with self._placing:
            return "" if self._task.worker else await self._place(waiting)

    async def _place(self, waiting: str) -> str:
        self._task.epoch += 1
        epoch, unable, failure = self._task.epoch, list[str](), None
        last = epoch + _MOST_ENDED
        while True:
            worker = await self._find_worker(waiting, unable, failure)
            refusal = await self._take_over(worker, epoch) if self._task.is_created else None
            if refusal is None:
                return self._give_to(worker)
            if refusal.type == EPOCH_ENDED:
                if epoch >= last:
                    raise refusal
                self._task.epoch += 1
                epoch = self._task.epoch
                continue
            unable.append(worker)
            if refusal.type in OF_ONE_WORKER:
                failure = refusal
            else:
                self._add_lost(worker)

    def _give_to(self, worker: str) -> str:
        self._task.worker = worker
        self._task.is_cloned = True
        if worker in self._task.lost:  # it was restarted, or is reached again
            self._task.lost.remove(worker)
        if ANOTHER_WORKER not in self._task.loss:
            return ""
        self._task.loss = self._task.loss.replace(ANOTHER_WORKER, worker)
        return self._task.loss

    def _add_lost(self, worker: str) -> None:
        if worker not in self._task.lost:
            self._task.lost.append(worker)

    async def _find_worker(self, waiting: str, unable: list[str], failure: ApplicationError | None) -> str:
        """`unable`: workers that could not take over the task in this search. `failure`: why the last one could not; it
        is raised soon if no other worker takes the task, because a person has to do something about it.
        """
        prefers_clone = workflow.patched(_PREFERS_CLONES) and self._task.repository and self._task.is_cloned
        others = list(dict.fromkeys([*self._task.lost, *unable]))
        if prefers_clone and (worker := await self._offer(waiting, self._task.repository, PREFER_S, others)):
            return worker
        self.is_waiting = True
        try:
            if failure is not None:
                worker = await self._wait_in_line(waiting, OTHERS_S, unable)
            elif others and workflow.patched(_TAKES_AGAIN):
                worker = await self._wait_in_line(waiting, OTHERS_S, others)
                worker = worker or await self._wait_in_line(waiting, LINE_S, unable)
            else:
                worker = await self._wait_in_line(waiting, LINE_S, others)
        finally:
            self.is_waiting = False
        if not worker:
            if failure is not None:
                raise failure
            text = f"No worker offered to take the task within {LINE_S:.0f} s"
            raise ApplicationError(text, type="no_worker", non_retryable=True)
        return worker

    async def _wait_in_line(self, waiting: str, limit_s: float, refused: list[str]) -> str:
        if self._task.requirements:
            return await self._search(waiting, limit_s, refused)
        return await self._offer(waiting, "", limit_s, refused)

    async def _offer(self, waiting: str, repository: str, limit_s: float, refused: list[str]) -> str:
        """The worker that takes the task; empty if none does. The operation that waits for it can be cancelled.
        `refused`: workers that may not take it.
        """
        handle = self._start_offer(repository, limit_s, refused)
        if workflow.patched(_PREFERS_CLONES):
            self._running[waiting] = handle
        try:
            return str((await handle)["worker"])
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise cancellation_error() from error
            return ""
        finally:
            self._running.pop(waiting, None)

    def _start_offer(self, queue: str, limit_s: float, refused: list[str]) -> workflow.ActivityHandle[dict[str, Any]]:
        """`queue`: a repository's key, or a class of workers."""
        required = (self._task.requirements,) if self._task.requirements else ()
        return workflow.start_activity(
            OFFER,
            args=(refused, *required),
            task_queue=name_offer_queue(self._task.prefix, queue),
            schedule_to_close_timeout=timedelta(seconds=limit_s),
            start_to_close_timeout=timedelta(seconds=min(limit_s, _ACCEPTED_S)),
            retry_policy=_OFFERS,
        )

    async def _search(self, waiting: str, limit_s: float, refused: list[str]) -> str:
        """As `_offer`, in the lines of all classes that meet the requirements. Several may take the task at once: the
        first one has it, and the others keep a slot for it in vain for some seconds.
        """
        search = asyncio.create_task(self._wait_in_lines(limit_s, refused))
        self._running[waiting] = search
        try:
            return await search
        except asyncio.CancelledError as error:
            if not search.cancelled():  # the workflow itself ends
                raise
            raise cancellation_error() from error
        except ActivityError as error:  # of the question for classes
            if is_cancelled_exception(error):
                raise cancellation_error() from error
            return ""
        finally:
            self._running.pop(waiting, None)

    async def _wait_in_lines(self, limit_s: float, refused: list[str]) -> str:
        offers: dict[str, workflow.ActivityHandle[dict[str, Any]]] = {}
        end = workflow.now() + timedelta(seconds=limit_s)
        try:
            while workflow.now() < end:
                for key in await self._find_classes():
                    if key not in offers or offers[key].done():
                        offers[key] = self._start_offer(key, limit_s, refused)
                if worker := await _first_taker([*offers.values()], min(limit_s, CLASSES_S)):
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

    async def _take_over(self, worker: str, epoch: int) -> ApplicationError | None:
        """None: the worker has the task. Else why it does not, with which others are asked."""
        try:
            await workflow.execute_activity(
                TAKE_OVER,
                {"url": self._task.url, "task_id": self._task.task_id, "epoch": epoch},
                task_queue=name_worker_queue(self._task.prefix, worker),
                schedule_to_start_timeout=timedelta(seconds=self._task.lost_after_s / 2),
                heartbeat_timeout=timedelta(seconds=self._task.lost_after_s / 2),
                start_to_close_timeout=timedelta(hours=1),
                retry_policy=ONCE,
            )
        except ActivityError as error:
            if is_loss(error):
                return ApplicationError(f"{worker} was lost, too", non_retryable=True)
            kind = error.cause.type if isinstance(error.cause, ApplicationError) else None
            if not _leaves_others(kind):
                raise ApplicationError(
                    f"The task cannot continue elsewhere: {error.cause}", non_retryable=True
                ) from error
            return ApplicationError(f"{worker} cannot continue the task: {error.cause}", type=kind, non_retryable=True)
        return None


def _leaves_others(kind: str | None) -> bool:
    """Whether another worker may continue a task that one could not. `kind`: of its error."""
    if kind == TASK_EXISTS:
        return True
    return (kind == EPOCH_ENDED or kind in OF_ONE_WORKER) and workflow.patched(_ASKS_OTHERS)


def is_loss(error: ActivityError) -> bool:
    """Whether the worker of an activity stopped answering, or did not take it."""
    return isinstance(error.cause, TimeoutError) and error.cause.type in _LOST


def is_untaken(error: ActivityError) -> bool:
    """Whether no worker took an activity in time, which the server then takes back."""
    return isinstance(error.cause, TimeoutError) and error.cause.type is TimeoutType.SCHEDULE_TO_START


def cancellation_error() -> ApplicationError:
    """Of an operation that was cancelled before a worker began it."""
    return ApplicationError(
        "The operation was cancelled while it waited for a worker", type="cancelled", non_retryable=True
    )


async def _first_taker(offers: list[workflow.ActivityHandle[dict[str, Any]]], wait_s: float) -> str:
    """The worker that took the first of these offers within that time; empty if no worker did."""
    pending = [offer for offer in offers if not offer.done()]
    if not pending:
        await workflow.sleep(wait_s)
        return ""
    done, _ = await workflow.wait(pending, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
    for offer in done:
        if not offer.cancelled() and offer.exception() is None:
            return str(offer.result()["worker"])
    return ""
