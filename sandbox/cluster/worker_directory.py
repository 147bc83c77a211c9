"""The workers of a Temporal cluster and what they can do, from the readers of its queues."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

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
from sandbox.cluster.server_requests import make_server_error
from sandbox.cluster.task_queues import name_task_queue, name_worker_directory
from sandbox.models.operations import WorkerInfo

_ASK_AGAIN_S = 0.1
_LOOK_AGAIN_S, _LOOK_RARELY_S, _RARER = 2.0, 30.0, 1.1
"""How often a worker looks for another process with its id: for some minutes often, then ever more rarely."""

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
    first heard of it, by the server's clock: of two processes, both can tell which one began earlier.

    Raises: `network_error` if the server does not list it within the limit.
    """
    starts, drawn = f"{queue}-starts", f"{worker}@{uuid.uuid4().hex}"
    request = PollActivityTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=starts), identity=drawn
    )
    reading = asyncio.create_task(client.workflow_service.poll_activity_task_queue(request))  # of an empty queue
    try:
        async with asyncio.timeout(limit_s):
            while True:
                for one in (await describe_queue(client, starts)).pollers:
                    if one.identity == drawn:
                        return f"{worker}@{one.last_access_time.ToNanoseconds():020d}-{drawn.rpartition('@')[2]}"
                await asyncio.sleep(_ASK_AGAIN_S)
    except (RPCError, TimeoutError) as error:
        raise make_server_error(client.service_client.config.target_host, error, None) from error
    finally:
        reading.cancel()


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
    """When a reader began; empty for one of an earlier version, which does not say it: before all that do."""
    found = re.search(r"@(\d{20})-", identity)
    return found[1] if found else ""


async def find_classes(client: Client, prefix: str, requirements: Requirements) -> tuple[str, ...]:
    """As `list_classes`, of all workers."""
    return list_classes(await list_workers(client, prefix), requirements)


def list_classes(workers: Iterable[WorkerInfo], requirements: Requirements) -> tuple[str, ...]:
    """The classes of the workers that meet the requirements, those with the most workers first. Pure."""
    able = (one.capabilities for one in workers if not list_unmet(one, requirements))
    count = Counter(make_class_key(found) for found in able if found is not None)
    return tuple(sorted(count, key=lambda key: (-count[key], key)))
