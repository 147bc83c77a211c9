"""The workers of a Temporal cluster and what they can do, from the readers of its queues."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, DescribeTaskQueueResponse
from temporalio.client import Client
from temporalio.service import RPCError

from sandbox.cluster.announcement import decode, make_class_key
from sandbox.cluster.requirements import Requirements, list_unmet
from sandbox.cluster.task_queues import name_task_queue, name_worker_directory
from sandbox.models.operations import WorkerInfo

_ASK_AGAIN_S = 0.1
_LOOK_AGAIN_S = 2.0
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


async def find_rival(client: Client, queue: str, identity: str, limit_s: float) -> bool:
    """Whether another process reads a queue that is for this one, who has just begun to. One that read it before and
    does so no more may have been killed; it is listed for some minutes. Returns after the limit at the latest.
    """
    ends_at = asyncio.get_running_loop().time() + limit_s
    before: dict[str, int] | None = None
    while asyncio.get_running_loop().time() < ends_at:
        with suppress(RPCError):
            pollers = (await describe_queue(client, queue)).pollers
            now = {one.identity: one.last_access_time.ToNanoseconds() for one in pollers if one.identity != identity}
            before = now if before is None else before
            if not before:
                return False
            if any(now.get(other, read_at) > read_at for other, read_at in before.items()):
                return True
        await asyncio.sleep(_LOOK_AGAIN_S)
    return False


async def find_classes(client: Client, prefix: str, requirements: Requirements) -> tuple[str, ...]:
    """As `list_classes`, of all workers."""
    return list_classes(await list_workers(client, prefix), requirements)


def list_classes(workers: Iterable[WorkerInfo], requirements: Requirements) -> tuple[str, ...]:
    """The classes of the workers that meet the requirements, those with the most workers first. Pure."""
    able = (one.capabilities for one in workers if not list_unmet(one, requirements))
    count = Counter(make_class_key(found) for found in able if found is not None)
    return tuple(sorted(count, key=lambda key: (-count[key], key)))
