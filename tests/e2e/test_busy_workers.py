"""A worker with more operations in progress than it has threads answers reading ones, and keeps its tasks."""

from __future__ import annotations

import asyncio
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from temporalio.client import Client

from sandbox.cluster import temporal_worker
from sandbox.cluster.task_queues import TaskStart, name_task_queue
from sandbox.cluster.task_updates import name_workflow
from sandbox.cluster.task_workflow import TaskWorkflow
from sandbox.models.operations import OperationName, TaskOperation
from tests.e2e.clusters import LOST_AFTER_S, connected
from tests.e2e.test_draining_workers import Reader
from tests.e2e.test_line_of_tasks import URL, make_check, working

pytestmark = pytest.mark.xdist_group("temporal")
_CHECKS = 104
"""More than Temporal takes at once by default."""


async def begin_tasks(address: str, name: str, worker: str) -> list[str]:
    """Tasks that a worker has: it takes one after the other, which would take longer than the test."""
    client = await Client.connect(address)
    starts = [
        TaskStart(f"task-{uuid.uuid4()}", URL, name, LOST_AFTER_S, worker=worker, epoch=1, is_created=True)
        for _ in range(_CHECKS)
    ]
    queue = name_task_queue(name)
    await asyncio.gather(
        *(
            client.start_workflow(TaskWorkflow.run, one, id=name_workflow(name, one.task_id), task_queue=queue)
            for one in starts
        )
    )
    return [one.task_id for one in starts]


def test_checks_keep_no_reading_operation_waiting(temporal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those without a thread wait on the worker, which reports them: no task is moved to the other one."""
    monkeypatch.setattr(temporal_worker, "THREADS", 3)
    name = f"busy-{uuid.uuid4().hex[:8]}"
    with (
        connected(temporal, name) as dispatcher,
        working(temporal, name, kind=Reader) as busy,
        working(temporal, name, kind=Reader) as free,
        ThreadPoolExecutor(16) as pool,
    ):
        free.may_end.set()
        tasks = asyncio.run(begin_tasks(temporal, name, busy.id))
        checks = [make_check(task) for task in tasks]
        list(pool.map(lambda one: dispatcher.submit(one, is_new=True), checks))
        look = TaskOperation(id="look", task_id=tasks[-1], name=OperationName.LOOK)
        dispatcher.submit(look, is_new=True)
        seen = dispatcher.result(look, LOST_AFTER_S)
        assert len(busy.checked) == 3, "void: checks do not wait for a thread"
        busy.may_end.set()
        answers = list(pool.map(dispatcher.result, checks))
    assert seen is not None, "it had no thread"
    assert {(one.worker, one.epoch, one.lost) for one in (seen, *answers) if one} == {(busy.id, 1, None)}
    assert (len(busy.checked), free.taken_over) == (_CHECKS, [])
