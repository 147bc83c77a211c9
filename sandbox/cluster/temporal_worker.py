"""A worker that takes its operations from Temporal.

Theory. It reads the workflows of all tasks, its own queue of operations, and offers to take a task: those to all
workers, and those of each repository that it has. It asks for offers while it has a free slot and room on its disk. A
request that waits at the server cannot be taken back, so an offer that comes when the last slot is gone, or the room,
is refused. An operation runs in a thread while this module reports that the worker lives. A cancelled operation is
answered when its container is gone, never before. One that could not be reported for too long is stopped by the client
library, and not answered.

Stopping the worker lets operations in progress end. Until they have, it goes on reading its own queue, because they are
looked at and stopped over that queue, and a task is moved when an operation on it is not taken. An operation that would
change a task is then taken and not answered: workflows of every version count that as a loss and move the task.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from pydantic import ValidationError
from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    CustomSlotSupplier,
    FixedSizeSlotSupplier,
    PollerBehaviorSimpleMaximum,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
    WorkerTuner,
)
from temporalio.worker import Worker as TemporalPoller

from sandbox.cluster.announcement import encode, make_class_key
from sandbox.cluster.done_operations import digest_operation
from sandbox.cluster.publisher import ClusterPublisher
from sandbox.cluster.repository_key import make_repository_key
from sandbox.cluster.repository_queues import RepositoryQueues
from sandbox.cluster.requirements import list_unmet
from sandbox.cluster.task_queues import (
    ALL_READS,
    ANSWER_BYTES,
    DRAIN,
    EPOCH_ENDED,
    FIND_CLASSES,
    OFFER,
    PERFORM,
    PUBLISH,
    TAKE_OVER,
    TASK_EXISTS,
    measure_payload,
    name_offer_queue,
    name_publish_queue,
    name_task_queue,
    name_worker_directory,
    name_worker_queue,
)
from sandbox.cluster.task_workflow import DrainWorkflow, TaskWorkflow
from sandbox.cluster.worker import ClusterWorker
from sandbox.cluster.worker_directory import find_classes, find_rival, name_reader, wait_until_listed
from sandbox.cluster.worker_slots import WorkerSlots
from sandbox.document_errors import describe_errors
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.operations import OperationAnswer, OperationError, OperationName, TaskOperation, WorkerInfo
from sandbox.version import __version__

THREADS = 64
"""Operations at once, and as many reading ones beside them, which checks that run for hours do not keep waiting. Checks
wait for a place in the home's own run queue, so this does not bound the load.
"""

TAKEN = 10_000
"""Operations that the worker has taken from its own queue, and reports; those without a thread wait. Reached: it reads
the queue no more, and its tasks go on elsewhere, so this is more than its tasks ask for at once.
"""

LISTED_S = 10.0
"""How long a worker waits until the server lists it, once for each of two queues; reached: it works. Tasks with
requirements may be refused then, and of two processes with its id it is the one that ends.
"""

ROOM_EVERY_S = 5.0
"""How often a worker with a full disk looks whether it can take tasks again."""

_ALIVE_EVERY_S, _SENT_EVERY_S = 1.0, 3.0
"""How often an operation says that its worker lives, and how often that is sent at most: each time is an action that
Temporal Cloud counts. A worker that is cut off is missed at least the limit less this later; a server that asks whether
connections live has by then let go of those of the worker, and gives them no steps.
"""
_ANSWER_READ_S = 1.0
_REFUSED_AGAIN_S = 10  # longest time until a worker that refused a task is offered it again
_ResultT = TypeVar("_ResultT")


class WorkerActivities:
    """What the workflow of a task asks of the worker that has it. `use_clone`: called with a repository's key when this
    host has made or updated its clone.
    """

    def __init__(self, worker: ClusterWorker, slots: WorkerSlots, use_clone: Callable[[str], None]) -> None:
        self._worker, self._slots, self._use_clone = worker, slots, use_clone
        self._threads = ThreadPoolExecutor(THREADS, "operation")
        self._reading_threads = ThreadPoolExecutor(THREADS, "read")

    @activity.defn(name=PERFORM)
    async def perform(self, document: dict[str, Any]) -> dict[str, Any]:
        """Carry out one operation. Ends only when the operation has ended, also if it is cancelled."""
        try:
            operation = TaskOperation.model_validate(document)
        except ValidationError as error:
            return _refuse_unknown(document, self._worker.id, error).model_dump(mode="json")
        stop = threading.Event()
        act = partial(self._worker.perform, operation, stop.is_set)
        if operation.name in ALL_READS:
            return _give_answer(operation, await _run_alive(self._reading_threads, act, stop.set))
        if self._slots.is_draining:
            activity.raise_complete_async()
        with self._slots.occupied(_find_workflow()):
            answer = await self._run(act, stop.set)
        if operation.name is OperationName.CREATE:
            await self._note_clone(str(operation.arguments.get("url", "")))
        return _give_answer(operation, answer)

    @activity.defn(name=TAKE_OVER)
    async def take_over(self, document: dict[str, Any]) -> None:
        """Continue a task from the hub."""
        if self._slots.is_draining:  # the type has any version of the workflow ask another host
            raise ApplicationError("The worker takes no more tasks", type=TASK_EXISTS, non_retryable=True)
        try:
            with self._slots.occupied(_find_workflow()):
                await self._run(partial(self._worker.take_over, **document), lambda: None)
        except SandboxError as error:
            text = f"{error.brief} {error.hint}"
            raise ApplicationError(text, type=name_refusal(error), non_retryable=True) from error
        await self._note_clone(document["url"])

    async def _note_clone(self, url: str) -> None:
        """What was done stays done if this fails."""
        key = make_repository_key(url)
        with suppress(SandboxError):
            if await asyncio.to_thread(self._worker.has_clone, key):
                self._use_clone(key)

    async def _run(self, act: Callable[[], _ResultT], stop: Callable[[], None]) -> _ResultT:
        return await _run_alive(self._threads, act, stop)


class PublisherActivities:
    """What the workflow of a task asks of a controller that publishes."""

    def __init__(self, publisher: ClusterPublisher) -> None:
        self._publisher = publisher
        self._threads = ThreadPoolExecutor(THREADS, "publish")

    @activity.defn(name=PUBLISH)
    async def publish(self, document: dict[str, Any]) -> dict[str, Any]:
        """Push a task, open its pull request, or ask for it."""
        try:
            operation = TaskOperation.model_validate(document["operation"])
        except ValidationError as error:
            return _refuse_unknown(document["operation"], self._publisher.id, error).model_dump(mode="json")
        stop = threading.Event()
        act = partial(self._publisher.perform, document["url"], operation, stop.is_set)
        return _give_answer(operation, await _run_alive(self._threads, act, stop.set))


async def _run_alive(threads: ThreadPoolExecutor, act: Callable[[], _ResultT], stop: Callable[[], None]) -> _ResultT:
    """Run in a thread while this reports that the host lives. Cancelled, it calls `stop` and waits for the end."""
    running = asyncio.get_running_loop().run_in_executor(threads, act)
    while not running.done():
        activity.heartbeat()
        try:
            await asyncio.wait({running}, timeout=_ALIVE_EVERY_S)
        except asyncio.CancelledError:
            stop()
    return running.result()


class TaskOffers:
    """Answers the offers of one queue. `info`: what the worker announces. `repository`: the key of its repository;
    empty: the queue of all workers, or of its class. `drop_clone`: called if the repository's clone is gone.
    """

    def __init__(
        self,
        worker: ClusterWorker,
        slots: WorkerSlots,
        info: WorkerInfo,
        repository: str,
        drop_clone: Callable[[str], None],
    ) -> None:
        self._worker, self._slots, self._info = worker, slots, info
        self._repository, self._drop_clone = repository, drop_clone

    @activity.defn(name=OFFER)
    async def offer(self, refused: list[str], required: dict[str, str] | None = None) -> dict[str, str]:
        """Take a task. `refused`: workers that may not: those that lost it, for a while, and that could not take it.
        `required`: of a worker, by a task that has the clone here or is of this class.
        """
        if unmet := list_unmet(self._info, required or {}):
            raise ApplicationError(f"This worker lacks {', '.join(unmet)}")
        if self._worker.id in refused:
            raise _refuse_for_now("The task was here before")
        if self._repository and not await asyncio.to_thread(self._worker.has_clone, self._repository):
            self._drop_clone(self._repository)
            raise ApplicationError("The clone was removed")
        if not await asyncio.to_thread(self._worker.has_room):
            raise _refuse_for_now("Too little disk space is free")
        if not self._slots.reserve(_find_workflow()):
            raise ApplicationError("No slot is free")
        return {"worker": self._worker.id}


class WorkerDirectory:
    """Finds the workers that a task can wait for. `prefix`: the name of the cluster."""

    def __init__(self, client: Client, prefix: str) -> None:
        self._client, self._prefix = client, prefix

    @activity.defn(name=FIND_CLASSES)
    async def find_classes(self, requirements: dict[str, str]) -> list[str]:
        """The classes of workers that meet the requirements."""
        return list(await find_classes(self._client, self._prefix, requirements))


class WorkerEnd:
    """Ends the worker from afar. `until`: see `run_worker`."""

    def __init__(self, slots: WorkerSlots, until: asyncio.Event) -> None:
        self._slots, self._until = slots, until

    @activity.defn(name=DRAIN)
    async def drain(self) -> int:
        """How many operations are in progress. The worker ends a moment later: it may be the one that has to read this
        answer.
        """
        asyncio.get_running_loop().call_later(_ANSWER_READ_S, self._until.set)
        return self._slots.running


def _refuse_for_now(why: str) -> ApplicationError:
    """Of an offer, which is then not made again at once: other workers come first."""
    delay = timedelta(seconds=min(activity.info().attempt, _REFUSED_AGAIN_S))
    return ApplicationError(why, next_retry_delay=delay)


def _find_workflow() -> str:
    """The workflow of the task that an activity is for."""
    return activity.info().workflow_id or ""


async def run_worker(
    client: Client, worker: ClusterWorker, prefix: str, slots: WorkerSlots, until: asyncio.Event,
    announce: Callable[[str], None],
) -> None:  # fmt: skip
    """Work until the event is set, and then until operations in progress have ended. `announce`: called with the
    worker's id when it begins and the server lists it. With a rival it reads its queue no more from then on.

    Raises: `conflict` (`reason`: `duplicate_worker`) if another process has its id and began earlier; `network_error`.
    """

    def poll_offers(key: str, repository: str = "") -> TemporalPoller:
        offers = TaskOffers(worker, slots, info, repository, queues.drop)
        supplier = _WhenOfferCanBeTaken(slots, worker.has_room)
        return _poll(client, name_offer_queue(prefix, key), worker.id, (), (offers.offer,), supplier)

    info = await asyncio.to_thread(worker.describe, slots.count)
    identity, queue = encode(info), name_worker_queue(prefix, worker.id)
    reader = await name_reader(client, queue, worker.id, LISTED_S)
    queues = RepositoryQueues(lambda repository: poll_offers(repository, repository))
    activities = WorkerActivities(worker, slots, queues.use)
    own = (activities.perform, activities.take_over, WorkerEnd(slots, until).drain)
    workflows, find = (TaskWorkflow, DrainWorkflow), (WorkerDirectory(client, prefix).find_classes,)
    async with AsyncExitStack() as stack:  # they end in reverse: no more offers, then operations, then answers
        await stack.enter_async_context(_poll(client, name_task_queue(prefix), worker.id, workflows))
        await stack.enter_async_context(_poll(client, name_worker_directory(prefix), identity, workflows, find))
        await stack.enter_async_context(_poll(client, queue, reader, (), own, FixedSizeSlotSupplier(TAKEN)))
        async with AsyncExitStack() as offers:
            await offers.enter_async_context(poll_offers(""))
            if info.capabilities is not None:
                await offers.enter_async_context(poll_offers(make_class_key(info.capabilities)))
            offers.push_async_callback(queues.close)
            for key in await asyncio.to_thread(worker.list_clones):
                queues.use(key)
            await wait_until_listed(client, prefix, identity, LISTED_S)
            announce(worker.id)
            await _wait_for_end(until, find_rival(client, queue, reader), worker.id)
        await slots.drain()


async def _wait_for_end(until: asyncio.Event, rival: Coroutine[Any, Any, None], worker_id: str) -> None:
    """Raises: `conflict` when there is a rival."""
    looking, ending = asyncio.create_task(rival), asyncio.create_task(until.wait())
    try:
        done, _ = await asyncio.wait({looking, ending}, return_when=asyncio.FIRST_COMPLETED)
        if looking in done:
            looking.result()
            raise SandboxError(
                ErrorCode.CONFLICT,
                f"Another process works as {worker_id}, so operations on its tasks would come to either",
                details="The id is that of the home. This process began later, and takes no more tasks.",
                hint="Start one worker for a home. If a home was copied to another host, give that one a new home.",
                reason="duplicate_worker",
            )
    finally:
        looking.cancel()
        ending.cancel()


async def run_publisher(
    client: Client, publisher: ClusterPublisher, prefix: str, until: asyncio.Event, announce: Callable[[str], None]
) -> None:
    """As `run_worker`, for a controller that publishes."""
    activities = PublisherActivities(publisher)
    async with _poll(client, name_publish_queue(prefix), publisher.id, (), (activities.publish,)):
        announce(publisher.id)
        await until.wait()


class _WhenOfferCanBeTaken(CustomSlotSupplier):
    """Asks for the next offer of a queue when the last one is answered and the worker has a free slot and room on its
    disk. Asking earlier would take an offer out of the line only to refuse it. Several queues may ask at once for the
    same slot.
    """

    def __init__(self, slots: WorkerSlots, has_room: Callable[[], bool]) -> None:
        self._slots, self._has_room = slots, has_room
        self._loop = asyncio.get_running_loop()
        self._answered = asyncio.Event()
        self._answered.set()

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        await self._answered.wait()
        await self._slots.wait_until_free()
        while not await asyncio.to_thread(self._has_room):
            await asyncio.sleep(ROOM_EVERY_S)
            await self._slots.wait_until_free()
        self._answered.clear()
        return SlotPermit()

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        return None

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None: ...

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        """Called in a thread of the client library, also after the loop has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._answered.set)


def _poll(
    client: Client,
    queue: str,
    identity: str,
    workflows: Sequence[type],
    methods: Sequence[Callable[..., Any]] = (),
    supplier: _WhenOfferCanBeTaken | FixedSizeSlotSupplier | None = None,
) -> TemporalPoller:
    """`supplier`: when an activity is taken; one of its own for a queue of offers."""
    fixed = FixedSizeSlotSupplier(100)  # the default of Temporal
    return TemporalPoller(
        client,
        task_queue=queue,
        workflows=workflows,
        activities=methods,
        identity=identity,
        tuner=WorkerTuner.create_composite(
            workflow_supplier=fixed,
            activity_supplier=supplier or fixed,
            local_activity_supplier=fixed,
            nexus_supplier=fixed,
        ),
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(
            1 if isinstance(supplier, _WhenOfferCanBeTaken) else 5
        ),
        graceful_shutdown_timeout=timedelta(days=1),
        max_heartbeat_throttle_interval=timedelta(seconds=_SENT_EVERY_S),
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=2),
    )


def name_refusal(error: SandboxError) -> str:
    """What the workflow reads of why a worker does not continue a task: the error's code, or a reason that it knows."""
    return error.reason if error.reason in {EPOCH_ENDED, TASK_EXISTS} else error.code.value


def _refuse_unknown(document: Mapping[str, Any], worker: str, error: ValidationError) -> OperationAnswer:
    """The answer to an operation of a newer version."""
    refusal = SandboxError(
        ErrorCode.INVALID_INPUT,
        f"{worker} does not know the operation {str(document.get('name'))[:100]!a}",
        details=f"It is of version {__version__}.\n{describe_errors(error)}",
        hint="Upgrade the worker, or drain it so that the task continues on a newer one; then ask under another id.",
        reason="unknown_operation",
    )
    return OperationAnswer(
        operation_id=document["id"],
        task_id=document["task_id"],
        epoch=document["epoch"],
        worker=worker,
        error=OperationError.model_validate(refusal.payload()["error"]),
    )


def _give_answer(operation: TaskOperation, answer: OperationAnswer) -> dict[str, Any]:
    """What the server gets. It keeps the answer by the operation's id alone, so the answer says which operation it was.

    An operation is also stopped if the server did not hear of this worker for too long. The answer then says what the
    stop did, such as a check that was killed, though no caller cancelled it. A server that just came back might take it
    before it counts this worker as lost. So it gets none: it notices the silence, and the task goes on elsewhere.
    """
    why = activity.cancellation_details()
    if why is not None and (why.timed_out or why.not_found):
        activity.raise_complete_async()
    said = answer.model_copy(update={"digest": digest_operation(operation)})
    return _bound_answer(said).model_dump(mode="json")


def _bound_answer(answer: OperationAnswer) -> OperationAnswer:
    size = measure_payload(answer.model_dump(mode="json"))
    if size <= ANSWER_BYTES:
        return answer
    error: Mapping[str, Any] = SandboxError(
        ErrorCode.QUOTA_EXCEEDED,
        f"The answer has {size} bytes; at most {ANSWER_BYTES} pass through the cluster",
        hint="Ask for less: a range of lines, fewer files. What the operation changed is in the task.",
    ).payload()["error"]
    return answer.model_copy(update={"value": None, "error": OperationError.model_validate(error)})
