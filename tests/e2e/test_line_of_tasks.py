"""In which order a busy cluster takes the tasks that wait. The server and the worker's queues are real."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from sandbox.cluster import temporal_dispatcher
from sandbox.cluster.dispatcher import PlaceInLine
from sandbox.cluster.temporal_client import ClusterAddress, connect_client
from sandbox.cluster.temporal_dispatcher import TemporalDispatcher
from sandbox.cluster.temporal_worker import run_worker
from sandbox.cluster.worker_slots import WorkerSlots
from sandbox.errors import SandboxError
from sandbox.models.operations import OperationAnswer, OperationName, TaskOperation, TaskPriority
from tests.e2e.clusters import connected, until

pytestmark = pytest.mark.xdist_group("temporal")
URL = "https://git.example.org/team/project"


class Recorder:
    """Creates tasks by writing them down. Its checks run until they may end."""

    def __init__(self) -> None:
        self.id = f"worker-{uuid.uuid4().hex[:16]}"
        self.created: list[str] = []
        self.may_end = threading.Event()

    def list_clones(self) -> tuple[str, ...]:
        return ()

    def has_clone(self, _key: str) -> bool:
        return False

    def perform(self, operation: TaskOperation, _cancelled: object) -> OperationAnswer:
        if operation.name is OperationName.CREATE:
            self.created.append(operation.task_id)
        else:
            self.may_end.wait(120)
        return OperationAnswer(
            operation_id=operation.id, task_id=operation.task_id, epoch=operation.epoch, worker=self.id
        )


@contextmanager
def working(address: str, name: str) -> Iterator[Recorder]:
    """A worker with one slot, in a thread."""
    worker: Any = Recorder()
    is_ready = threading.Event()

    async def work() -> None:
        client = await connect_client(ClusterAddress(address, name=name))
        await run_worker(client, worker, name, WorkerSlots(1), end, lambda _: is_ready.set())

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        await work()

    end, loops = asyncio.Event(), list[asyncio.AbstractEventLoop]()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(asyncio.run, run())
        assert is_ready.wait(60)
        try:
            yield worker
        finally:
            worker.may_end.set()
            loops[0].call_soon_threadsafe(end.set)
            done.result(60)


def place(dispatcher: TemporalDispatcher, task: str, line: PlaceInLine | None = None) -> OperationAnswer:
    return dispatcher.place(URL, {}, task, line)


def list_in_order(address: str, lines: Sequence[PlaceInLine]) -> list[PlaceInLine]:
    """The tasks that came in this order while the only worker was busy, in the order in which it took them."""
    name = f"line-{uuid.uuid4().hex[:8]}"
    tasks = {f"task-{uuid.uuid4()}": line for line in lines}
    with connected(address, name) as dispatcher, working(address, name) as worker:
        first = dispatcher.place(URL, {}).task_id
        check = TaskOperation(id="check", task_id=first, name=OperationName.CHECK, arguments={"check_ids": ["test"]})
        dispatcher.submit(check)
        assert dispatcher.result(check, wait_s=1.0) is None
        for task, line in tasks.items():
            with pytest.raises(SandboxError, match="busy"):
                place(dispatcher, task, line)
        until(lambda: dispatcher.line().tasks == len(tasks))
        worker.may_end.set()
        for task in tasks:
            place(dispatcher, task)
        assert sorted(worker.created) == sorted([first, *tasks])
        return [tasks[task] for task in worker.created[1:]]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporal_dispatcher, "BUSY_S", 0.5)


def test_a_person_goes_before_agents_and_these_before_batch_work(temporal: str) -> None:
    lines = [PlaceInLine(one) for one in (TaskPriority.BATCH, TaskPriority.AGENT, TaskPriority.PERSON)]
    assert list_in_order(temporal, lines) == lines[::-1]


def test_owners_take_turns(temporal: str) -> None:
    many, few = PlaceInLine(owner="many"), PlaceInLine(owner="few")
    assert few in list_in_order(temporal, [many, many, many, many, few])[:2]
