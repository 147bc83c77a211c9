"""In which order a busy cluster takes the tasks that wait. The server and the worker's queues are real."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from sandbox.cluster import temporal_dispatcher
from sandbox.cluster.dispatcher import ANY_WORKER, PlacementTerms
from sandbox.cluster.temporal_client import ClusterAddress, connect_client, make_runtime
from sandbox.cluster.temporal_dispatcher import TemporalDispatcher
from sandbox.cluster.temporal_worker import run_worker
from sandbox.cluster.worker_slots import WorkerSlots
from sandbox.daemon.cluster_metrics import ClusterCollector
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.operations import OperationAnswer, OperationName, TaskOperation, TaskPriority, WorkerInfo
from sandbox.models.workers import HostCapabilities
from tests.e2e.clusters import connected, until
from tests.unit.conftest import refused

pytestmark = pytest.mark.xdist_group("temporal")
URL = "https://git.example.org/team/project"


class Recorder:
    """Creates tasks by writing them down. Its checks run until they may end, and answer `value`."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self.id = f"worker-{uuid.uuid4().hex[:16]}"
        self.labels = labels
        self.created: list[str] = []
        self.checked: list[TaskOperation] = []
        self.end = asyncio.Event()
        self.may_end = threading.Event()
        self.value: Any = None

    def describe(self, slots: int) -> WorkerInfo:
        found = HostCapabilities(arch="amd64", cgroup="2", cpus=4, memory_bytes=8 * 1024**3, labels=self.labels)
        return WorkerInfo(id=self.id, slots=slots, capabilities=found)

    def list_clones(self) -> tuple[str, ...]:
        return ()

    def has_clone(self, _key: str) -> bool:
        return False

    def has_room(self) -> bool:
        return True

    def perform(self, operation: TaskOperation, _cancelled: object) -> OperationAnswer:
        if operation.name is OperationName.CREATE:
            self.created.append(operation.task_id)
        else:
            self.checked.append(operation)
            self.may_end.wait(120)
        is_create = operation.name is OperationName.CREATE
        return OperationAnswer(
            operation_id=operation.id, task_id=operation.task_id, epoch=operation.epoch, worker=self.id,
            value=None if is_create else self.value,
        )  # fmt: skip


@contextmanager
def working(
    address: str,
    name: str,
    labels: Mapping[str, str] | None = None,
    run: Callable[..., Any] = run_worker,
    kind: Callable[..., Any] = Recorder,
) -> Iterator[Any]:
    """A worker with one slot, in a thread; `kind`: what makes it."""
    worker: Any = kind(labels or {})
    is_ready = threading.Event()

    async def work() -> None:
        client = await connect_client(ClusterAddress(address, name=name), make_runtime())
        await run(client, worker, name, WorkerSlots(1), worker.end, lambda _: is_ready.set())

    async def begin() -> None:
        loops.append(asyncio.get_running_loop())
        await work()

    loops = list[asyncio.AbstractEventLoop]()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(asyncio.run, begin())
        assert is_ready.wait(60)
        try:
            yield worker
        finally:
            worker.may_end.set()
            with suppress(RuntimeError):  # it was drained: its loop has ended
                loops[0].call_soon_threadsafe(worker.end.set)
            done.result(60)


def place(dispatcher: TemporalDispatcher, task: str, terms: PlacementTerms = ANY_WORKER) -> OperationAnswer:
    return dispatcher.place(URL, {}, task, terms)


def list_in_order(address: str, lines: Sequence[PlacementTerms]) -> list[PlacementTerms]:
    """The tasks that came in this order while the only worker was busy, in the order in which it took them."""
    name = f"line-{uuid.uuid4().hex[:8]}"
    tasks = {f"task-{uuid.uuid4()}": line for line in lines}
    with connected(address, name) as dispatcher, working(address, name) as worker:
        first = dispatcher.place(URL, {}).task_id
        check = TaskOperation(id="check", task_id=first, name=OperationName.CHECK, arguments={"check_ids": ["test"]})
        dispatcher.submit(check)
        until(lambda: bool(worker.checked))
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
    lines = [PlacementTerms(one) for one in (TaskPriority.BATCH, TaskPriority.AGENT, TaskPriority.PERSON)]
    assert list_in_order(temporal, lines) == lines[::-1]


def test_owners_take_turns(temporal: str) -> None:
    many, few = PlacementTerms(owner="many"), PlacementTerms(owner="few")
    assert few in list_in_order(temporal, [many, many, many, many, few])[:2]


def make_check(task: str) -> TaskOperation:
    return TaskOperation(id=uuid.uuid4().hex, task_id=task, name=OperationName.CHECK, arguments={"check_ids": ["test"]})


def has_signal(dispatcher: TemporalDispatcher, task: str) -> bool:
    """Whether the server has what cancels an operation of a task."""
    history = dispatcher._wait(dispatcher._handle(task).fetch_history())
    return any(event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED for event in history.events)


def test_an_operation_that_is_cancelled_before_a_worker_has_it_does_not_begin(temporal: str) -> None:
    """Behind another one of its task, and for a worker that has ended."""
    name = f"line-{uuid.uuid4().hex[:8]}"
    with connected(temporal, name) as dispatcher, ExitStack() as stack:
        with working(temporal, name) as first:
            task = dispatcher.place(URL, {}).task_id
            running, behind = make_check(task), make_check(task)
            for one in (running, behind):
                dispatcher.submit(one)
            until(lambda: bool(first.checked))
            with ThreadPoolExecutor(1) as pool:
                cancelling = pool.submit(dispatcher.cancel, behind)
                until(lambda: has_signal(dispatcher, task))
                first.may_end.set()
                cancelling.result(60)
            assert dispatcher.result(running) is not None
            with refused(ErrorCode.CONFLICT) as caught:
                dispatcher.result(behind)
            assert caught.value.reason == "cancelled"
            second = stack.enter_context(working(temporal, name))
        ended = make_check(task)
        dispatcher.submit(ended)
        dispatcher.cancel(ended)
        with refused(ErrorCode.CONFLICT) as caught:
            dispatcher.result(ended)
        assert caught.value.reason == "cancelled"
    assert [one.id for one in first.checked] == [running.id]
    assert second.checked == []


def test_a_task_goes_only_to_a_worker_that_has_what_it_requires(temporal: str) -> None:
    """Also: it waits for that one while another is idle, is told so at once if there is none, and leaves the line."""
    name = f"line-{uuid.uuid4().hex[:8]}"
    gpu = {"gpu": "yes"}
    with connected(temporal, name) as dispatcher, working(temporal, name) as plain:
        with pytest.raises(SandboxError, match="No worker has gpu=yes") as caught:
            dispatcher.place(URL, {}, terms=PlacementTerms(requirements=gpu))
        assert caught.value.reason == "requirements_unmet"
        assert f"{plain.id} lacks gpu=yes. It has arch=amd64, cgroup=2, cpus=4" in caught.value.details
        with working(temporal, name, gpu) as able:
            until(lambda: {one.id for one in dispatcher.workers()} == {plain.id, able.id})
            placed = [
                dispatcher.place(URL, {}, terms=PlacementTerms(requirements={**gpu, "memory": "8g"})) for _ in range(3)
            ]
            assert {one.worker for one in placed} == {able.id}
            check = TaskOperation(
                id="check", task_id=placed[0].task_id, name=OperationName.CHECK, arguments={"check_ids": ["test"]}
            )
            dispatcher.submit(check)
            until(lambda: bool(able.checked))
            waiting, leaving = (f"task-{uuid.uuid4()}" for _ in range(2))
            for task in (waiting, leaving):
                with pytest.raises(SandboxError, match="busy"):
                    dispatcher.place(URL, {}, task, terms=PlacementTerms(requirements=gpu))
            until(lambda: dispatcher.line().tasks == 2)
            figures = [one.samples[0].value for one in ClusterCollector(lambda: dispatcher).collect()]
            assert figures[:4] == [1, 2, 2, 2], "up, workers, slots, waiting tasks"
            dispatcher.cancel(TaskOperation(id="create", task_id=leaving, name=OperationName.CREATE))
            able.may_end.set()
            assert dispatcher.place(URL, {}, waiting, terms=PlacementTerms(requirements=gpu)).worker == able.id
            assert leaving not in able.created
        assert plain.created == []
