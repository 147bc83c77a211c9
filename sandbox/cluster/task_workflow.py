"""The durable part of a task on a cluster: which worker has it, its epoch, and the answers that were given.

Theory. A task is one workflow. Its operations are updates, carried out one after another by the worker that has the
task, over a queue of that worker's own; reading ones may overtake. When the worker stops answering, the task gets the
next epoch and another worker, which continues from the hub; the operation is then carried out there, under the new
epoch. The hub refuses what the lost worker still sends, so an operation counts at most once in each epoch and only the
last epoch counts. A worker that carries out a change and reports it is not lost, even if it does not take a reading
operation: that one is asked again, or fails. Temporal may run this code again from its history: it is pure but for the
activities.

Which worker it is, is the matter of `sandbox.cluster.task_placement`. The workflow of a task that requires something is
on the queue of the worker directory, which workers that do not know of requirements do not read.

This module does not import the rest of the package, because Temporal loads it in a sandbox of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any, cast

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutError, TimeoutType, is_cancelled_exception

from sandbox.cluster.operation_admission import OperationAdmission
from sandbox.cluster.task_placement import ONCE, TaskPlacement, cancellation_error, is_loss, is_untaken
from sandbox.cluster.task_queues import (
    ALL_READS,
    DRAIN,
    DRAIN_S,
    LATER_READS,
    NO_ROOM,
    PERFORM,
    PUBLISH,
    PUBLISHES,
    READS,
    READS_OF_CHANGES,
    READS_OF_RUNS,
    READS_OF_STATES,
    STOPS,
    TaskStart,
    measure_payload,
    name_publish_queue,
    name_worker_queue,
)

KEPT_ANSWERS, KEPT_BYTES = 200, 1536 * 1024
"""Of a task; the bytes are those of all answers that a new history begins with. The server refuses one that begins with
2 MiB (`limit.blobSize.error`), and the task would stay as it is for ever.
"""

MOST_UPDATES, MOST_BYTES = 1500, 25 * 1024**2
"""Of one history, until reading operations are refused (also `TaskStart.most_events`). The server refuses more than
2,000 updates, and ends a workflow with 50 MB or 51,200 events.
"""
SILENT_SHARE = 0.6
"""Of `lost_after_s`: how long a worker with an operation may be silent. The rest is for the search of another one."""

_MOVES, _TIMES_READ = 3, 3
_OPERATION_S = 24 * 3600.0

_LOOKS_AT_RUNS = "looks-at-runs"
"""The change since which `READS_OF_RUNS` overtake. Asked about only for these: a task that was never asked for them has
no mark of it, so workers of both versions may do its steps.
"""

_LOOKS_AT_MORE = "looks-at-more"
"""As above, for `LATER_READS`."""

_LOOKS_AT_CHANGES = "looks-at-changes"
"""As above, for `READS_OF_CHANGES`."""

_LOOKS_AT_STATES = "looks-at-states"
"""As above, for `READS_OF_STATES`."""

_CANCELS_EARLY = "cancels-early"
"""The change since which an operation that was cancelled when no worker had it does not begin. Before it a cancellation
was forgotten while the operation waited for its turn, or for the files of its task on another worker. Asked about only
for cancelled operations.
"""

_KEEPS_WORKER = "keeps-worker"
"""The change since which a reading operation that no worker took in time does not move its task while another one
changes it. A worker of an earlier version that ends reads its queue no more, and its check would be lost with the move.
Asked about only then.
"""

_RENEWS_EARLY = "renews-early"
"""The change since which a history of `TaskStart.renewed_events` is replaced. Asked about in the step that ends the
history: a worker of an earlier version never meets the mark in a task that goes on.
"""


@workflow.defn(name="space-sandbox-task")
class TaskWorkflow:
    """See the module."""

    @workflow.init
    def __init__(self, start: TaskStart) -> None:
        self._task = start
        self._turn = asyncio.Lock()
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._asked = OperationAdmission()
        self._accepted = 0
        self._changed_epoch = 0
        """The epoch for which a worker has an operation that changes the task; 0: none has."""
        self._cancelled: set[str] = set()
        self._placement = TaskPlacement(start, self._running)
        self._is_closed = False

    @workflow.run
    async def run(self, _start: TaskStart) -> None:
        """Live until the task is closed; a long history is replaced by a new one with the same state."""
        await workflow.wait_condition(
            lambda: self._is_closed or workflow.info().is_continue_as_new_suggested() or self._renews_early()
        )
        await workflow.wait_condition(workflow.all_handlers_finished)
        if not self._is_closed:
            most = min(KEPT_BYTES, self._asked.count_room(_find_step()))
            self._task.answers = _keep_newest(self._task.answers, most)
            workflow.continue_as_new(self._task)

    def _renews_early(self) -> bool:
        """Before the server says that the history is long. Asked only between two operations."""
        is_long = _find_step() > self._task.renewed_events and workflow.all_handlers_finished()
        return is_long and workflow.patched(_RENEWS_EARLY)

    @workflow.update
    async def operate(self, operation: dict[str, Any]) -> dict[str, Any]:
        """Carry out an operation; the answer of an earlier one with the same id."""
        self._asked.accept(operation, _find_step())
        self._accepted += 1
        answer: dict[str, Any] = {}
        try:
            answer = await self._answer(operation)
        finally:
            self._asked.answer(operation["id"], answer, _find_step())
            self._cancelled.discard(operation["id"])
        return answer

    async def _answer(self, operation: dict[str, Any]) -> dict[str, Any]:
        if _overtakes(operation["name"]):
            return await self._carry_out(operation)
        async with self._turn:
            known = self._task.answers.get(operation["id"])
            return known or self._remember(operation, await self._carry_out(operation))

    @operate.validator
    def refuse_for_now(self, operation: dict[str, Any]) -> None:
        """Before the server ends the task: for more than it takes in one step (`operation_admission`), and looks for a
        long history, which is replaced when no operation runs. What is refused here leaves no trace in it.
        """
        if not self._asked.takes(operation, _find_step(), workflow.time()):
            raise ApplicationError("The task has too many operations at once", type=NO_ROOM, non_retryable=True)
        if operation.get("name") not in ALL_READS or operation.get("name") in STOPS:
            return
        info = workflow.info()
        events, size = info.get_current_history_length(), info.get_current_history_size()
        if self._accepted > MOST_UPDATES or events > self._task.most_events or size > MOST_BYTES:
            text = f"The history of the task has {events} events, until the operation in progress has ended"
            raise ApplicationError(text, type="history_full", non_retryable=True)

    @workflow.update
    async def reserve(self, wanted: dict[str, Any]) -> None:
        """Keep room for a large operation, which its caller sends then. `wanted`: its `id`, `name` and `size`."""
        self._asked.reserve(wanted, workflow.time())
        self._accepted += 1

    @reserve.validator
    def refuse_to_reserve(self, wanted: dict[str, Any]) -> None:
        """As `refuse_for_now`, without the arguments: a refusal is sent with what was asked."""
        if not self._asked.may_reserve(wanted, _find_step(), workflow.time()):
            raise ApplicationError("The task has too many operations at once", type=NO_ROOM, non_retryable=True)

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
    def answer(self, operation_id: str) -> dict[str, Any] | None:
        """The answer of an operation that changed the task, also one of a history before this one; None: there is none
        yet, or it is too old.
        """
        return self._task.answers.get(operation_id)

    @workflow.query
    def placement(self) -> dict[str, Any]:
        """Which worker has the task, and for which epoch; whether it waits for one in the line of the shared queue, and
        what it lost with its last one. Also what a fork of the task has in common with it.
        """
        return {
            "worker": self._task.worker,
            "epoch": self._task.epoch,
            "lost": self._task.lost,
            "is_waiting": self._placement.is_waiting,
            "loss": self._task.loss or None,
            "lost_at": self._task.lost_at or None,
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
                loss = await self._placement.ensure_worker(operation["id"]) or loss
                self._require_not_cancelled(operation["id"])
            worker, epoch = self._task.worker, self._task.epoch
            try:
                answer = await self._perform({**operation, "epoch": epoch})
            except ActivityError as error:
                if not is_loss(error):
                    raise ApplicationError(f"The worker failed: {error.cause}", non_retryable=True) from error
                loss = await self._placement.replace_worker(worker, epoch, operation["id"])
                continue
            return {**answer, "lost": loss} if loss else answer
        raise ApplicationError(f"{_MOVES} workers were lost during one operation", non_retryable=True)

    def _require_not_cancelled(self, operation_id: str) -> None:
        if operation_id in self._cancelled and workflow.patched(_CANCELS_EARLY):
            raise cancellation_error()

    async def _perform(self, operation: dict[str, Any]) -> dict[str, Any]:
        start_s, silent_s = self._task.lost_after_s / 2, self._task.lost_after_s * SILENT_SHARE
        queue = name_worker_queue(self._task.prefix, self._task.worker)
        ask = partial(self._await_answer, operation["id"], (PERFORM, operation), queue, start_s, silent_s)
        if operation["name"] in ALL_READS:
            return await self._read(ask, operation["epoch"])
        self._changed_epoch = operation["epoch"]
        try:
            return await ask()
        finally:
            self._changed_epoch = 0

    async def _read(self, ask: Callable[[], Awaitable[dict[str, Any]]], epoch: int) -> dict[str, Any]:
        """Ask again if the worker did not take it, but has a change of the task: its own limits tell whether the worker
        is lost.
        """
        for _ in range(_TIMES_READ):
            try:
                return await ask()
            except ActivityError as error:
                if not (is_untaken(error) and epoch == self._changed_epoch and workflow.patched(_KEEPS_WORKER)):
                    raise
        text = f"{self._task.worker} did not take it; it carries out another operation of the task"
        raise ApplicationError(text, type="worker_busy", non_retryable=True)

    async def _publish(self, operation: dict[str, Any]) -> dict[str, Any]:
        start_s = self._task.publisher_s
        silent_s = max(start_s, self._task.lost_after_s)
        asked = (PUBLISH, {"url": self._task.url, "operation": operation})
        queue = name_publish_queue(self._task.prefix)
        try:
            return await self._await_answer(operation["id"], asked, queue, start_s, silent_s)
        except ActivityError as error:
            if not is_loss(error):
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
            retry_policy=ONCE,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        self._running[operation_id] = handle
        try:
            answer: Any = await handle
        except ActivityError as error:
            if is_cancelled_exception(error):  # no worker had taken it
                raise cancellation_error() from error
            raise
        finally:
            self._running.pop(operation_id, None)
        if isinstance(answer, dict):
            answer.pop("lost", None)  # only the workflow says it
        return cast("dict[str, Any]", answer)


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
                retry_policy=ONCE,
                result_type=int,
            )
        )


def _find_step() -> int:
    """It grows with each step that left a trace in the history."""
    return workflow.info().get_current_history_length()


def _keep_newest(answers: dict[str, dict[str, Any]], most: int) -> dict[str, dict[str, Any]]:
    """Those that have together at most so many bytes; one that does not fit beside newer ones is left out."""
    left, kept = most, set[str]()
    for key in reversed(answers):
        if (size := len(key) + measure_payload(answers[key])) <= left:
            left -= size
            kept.add(key)
    return {key: answer for key, answer in answers.items() if key in kept}


def _overtakes(name: str) -> bool:
    if name in READS_OF_STATES:
        return workflow.patched(_LOOKS_AT_STATES)
    if name in READS_OF_CHANGES:
        return workflow.patched(_LOOKS_AT_CHANGES)
    if name in LATER_READS:
        return workflow.patched(_LOOKS_AT_MORE)
    return name in READS or (name in READS_OF_RUNS and workflow.patched(_LOOKS_AT_RUNS))
