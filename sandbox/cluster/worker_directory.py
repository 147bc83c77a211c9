"""The workers of a Temporal cluster and what they can do, from the readers of its queues."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeTaskQueueResponse,
    PollActivityTaskQueueRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError

from sandbox.cluster.announcement import decode, make_class_key
from sandbox.cluster.requirements import Requirements, list_unmet
from sandbox.cluster.server_requests import ServerRequests
from sandbox.cluster.task_queues import name_task_queue, name_worker_directory
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.operations import WorkerInfo

_ASK_AGAIN_S = 0.1
_LOOK_AGAIN_S, _LOOK_RARELY_S, _RARER = 2.0, 30.0, 1.1
"""How often a worker looks for another process with its id: for some minutes often, then ever more rarely."""

_LAST_NS = 10**20 - 1
"""When a worker began that the server did not list: later than all others, in as many digits."""

_ACTIVITY, _WORKFLOW = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW


async def describe_queue(
    client: Client, queue: str, kind: TaskQueueType.ValueType = _ACTIVITY
) -> DescribeTaskQueueResponse:
    """Who reads a queue, or did in the last minutes, and how much is in it."""
    return await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind, report_stats=True
        )
    )


async def list_readers(client: Client, queue: str, kind: TaskQueueType.ValueType = _ACTIVITY) -> set[str]:
    """The identities of a queue's readers."""
    return {poller.identity for poller in (await describe_queue(client, queue, kind)).pollers}


async def list_workers(client: Client, prefix: str) -> tuple[WorkerInfo, ...]:
    """All workers, by id. What one of an earlier version can do is unknown; of one that was started again with other
    labels, what it announced last counts.
    """
    found = {name: WorkerInfo(id=name) for name in await list_readers(client, name_task_queue(prefix), _WORKFLOW)}
    pollers = (await describe_queue(client, name_worker_directory(prefix), _WORKFLOW)).pollers
    for poller in sorted(pollers, key=lambda one: one.last_access_time.ToNanoseconds()):
        if (worker := decode(poller.identity)) is not None:
            found[worker.id] = worker
    return tuple(found[name] for name in sorted(found))


async def wait_until_listed(client: Client, prefix: str, identity: str, limit_s: float) -> None:
    """Returns when the server lists a worker that announced this, after the limit, or if it fails."""
    with suppress(TimeoutError, RPCError):
        async with asyncio.timeout(limit_s):
            while identity not in await list_readers(client, name_worker_directory(prefix), _WORKFLOW):
                await asyncio.sleep(_ASK_AGAIN_S)


async def name_reader(client: Client, queue: str, worker: str, limit_s: float) -> str:
    """An identity that no other process has, for a reader of the queue of one worker. It begins with when the server
    first heard of it, by the server's clock: of two processes, both can tell which one began earlier. One that the
    server does not list within the limit is later than all that it does.

    Raises: `network_error` if the server refuses to list it, or does not answer.
    """
    starts, drawn, requests = f"{queue}-starts", uuid.uuid4().hex, ServerRequests()
    request = PollActivityTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=starts), identity=f"{worker}@{drawn}"
    )
    read = partial(client.workflow_service.poll_activity_task_queue, request)  # an empty queue
    reading = asyncio.create_task(requests.ask(read, limit_s))
    is_answered, began_ns = False, _LAST_NS
    try:
        async with asyncio.timeout(limit_s):
            while began_ns == _LAST_NS:
                found = await requests.ask(partial(describe_queue, client, starts), limit_s)
                is_answered = True
                seen = (one.last_access_time for one in found.pollers if one.identity == request.identity)
                began_ns = next((at.ToNanoseconds() for at in seen), _LAST_NS)
                if reading.done():
                    reading.result()
                await asyncio.sleep(_ASK_AGAIN_S)
    except (RPCError, TimeoutError) as error:
        if not (is_answered and isinstance(error, TimeoutError)):
            raise _unlisted_worker_error(client, worker, error) from error
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    return f"{worker}@{began_ns:020d}-{drawn}"


def _unlisted_worker_error(client: Client, worker: str, error: Exception) -> SandboxError:
    return SandboxError(
        ErrorCode.NETWORK_ERROR,
        f"The Temporal server at {client.service_client.config.target_host} does not list {worker} as a worker",
        details=str(error)[:500],
        hint="Look whether it runs, and knows cluster.namespace, and lets this host read queues; then start it again.",
    )


async def find_rival(client: Client, queue: str, identity: str) -> None:
    """Returns when another process reads a queue that is for this one, and began earlier. One that read it before and
    does so no more may have been killed; it is listed for some minutes. `identity`: of `name_reader`.
    """
    read_at: dict[str, int] = {}
    pause_s = _LOOK_AGAIN_S
    while True:
        with suppress(RPCError):
            for one in (await describe_queue(client, queue)).pollers:
                now = one.last_access_time.ToNanoseconds()
                is_earlier = _find_start(one.identity) < _find_start(identity)
                if is_earlier and now > read_at.setdefault(one.identity, now):
                    return
        await asyncio.sleep(pause_s)
        pause_s = min(_LOOK_RARELY_S, pause_s * _RARER)


def _find_start(identity: str) -> str:
    """When a reader began, and what tells it from one that began at the same time; empty for one of an earlier version,
    which does not say it: before all that do.
    """
    found = re.search(r"@(\d{20}-\w+)", identity)
    return found[1] if found else ""


async def find_classes(client: Client, prefix: str, requirements: Requirements) -> tuple[str, ...]:
    """As `list_classes`, of all workers."""
    return list_classes(await list_workers(client, prefix), requirements)


def list_classes(workers: Iterable[WorkerInfo], requirements: Requirements) -> tuple[str, ...]:
    """The classes of the workers that meet the requirements, those with the most workers first. Pure."""
    able = (one.capabilities for one in workers if not list_unmet(one, requirements))
    count = Counter(make_class_key(found) for found in able if found is not None)
    return tuple(sorted(count, key=lambda key: (-count[key], key)))
