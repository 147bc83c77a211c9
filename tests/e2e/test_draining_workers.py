"""A worker is stopped while a check runs on it, and the task is read meanwhile, as `sandbox check run` does to show
progress. The server and the worker's queues are real.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from sandbox.cluster.task_queues import ALL_READS
from sandbox.cluster.task_workflow import TaskWorkflow
from sandbox.cluster.temporal_dispatcher import TemporalDispatcher
from sandbox.cluster.temporal_worker import run_worker
from sandbox.cluster.worker_slots import WorkerSlots
from sandbox.errors import SandboxError
from sandbox.models.operations import OperationAnswer, OperationName, TaskOperation
from tests.e2e.clusters import connected, until
from tests.e2e.test_line_of_tasks import URL, Recorder, make_check, working
from tests.e2e.test_rolling_upgrade import fetch, run_earlier_worker

pytestmark = pytest.mark.xdist_group("temporal")


class Reader(Recorder):
    """Answers reading operations at once, and continues tasks by writing them down."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        super().__init__(labels)
        self.taken_over: list[tuple[str, int]] = []

    def perform(self, operation: TaskOperation, cancelled: object) -> OperationAnswer:
        if operation.name not in ALL_READS:
            return super().perform(operation, cancelled)
        return OperationAnswer(
            operation_id=operation.id, task_id=operation.task_id, epoch=operation.epoch, worker=self.id, value=None
        )

    def take_over(self, url: str, task_id: str, epoch: int) -> None:
        self.taken_over.append((task_id, epoch))


class Scene:
    """One worker runs a check of the first of two tasks and is drained; another one is free."""

    def __init__(self, dispatcher: TemporalDispatcher, drained: Reader, free: Reader) -> None:
        self.dispatcher, self.drained, self.free = dispatcher, drained, free
        self.task, self.idle_task = "", ""

    def begin(self) -> None:
        self.check = make_check(self.task)
        self.dispatcher.submit(self.check, is_new=True)
        until(lambda: bool(self.drained.checked))
        self.dispatcher.drain(self.drained.id)
        until(self.drained.end.is_set)

    def ask(self, task: str, name: OperationName) -> OperationAnswer:
        asked = TaskOperation(id=uuid.uuid4().hex, task_id=task, name=name)
        self.dispatcher.submit(asked, is_new=True)
        answer = self.dispatcher.result(asked)
        assert answer is not None
        return answer

    def end_check(self) -> OperationAnswer:
        self.drained.may_end.set()
        answer = self.dispatcher.result(self.check)
        assert answer is not None
        return answer


@contextmanager
def draining(address: str, name: str, run: Callable[..., Any] = run_worker) -> Iterator[Scene]:
    with (
        connected(address, name) as dispatcher,
        working(address, name, run=run, kind=Reader) as drained,
    ):
        tasks = [dispatcher.place(URL, {}).task_id for _ in range(2)]
        with working(address, name, run=run, kind=Reader) as free:
            free.may_end.set()
            scene = Scene(dispatcher, drained, free)
            scene.task, scene.idle_task = tasks
            scene.begin()
            yield scene


def find_history(address: str, name: str, task: str) -> WorkflowHistory:
    return asyncio.run(fetch(address, name, [task]))[0]


def test_a_draining_worker_answers_reading_operations_until_its_check_has_ended(temporal: str) -> None:
    """It begins no other change: that one goes on elsewhere."""
    name = f"drain-{uuid.uuid4().hex[:8]}"
    with draining(temporal, name) as scene:
        seen = [scene.ask(scene.task, one) for one in (OperationName.LOOK, OperationName.STOP_CHECKS)]
        assert [(one.worker, one.epoch, one.lost) for one in seen] == [(scene.drained.id, 1, None)] * 2
        moved = scene.ask(scene.idle_task, OperationName.SNAPSHOT)
        assert (moved.worker, moved.epoch, scene.free.taken_over) == (scene.free.id, 2, [(scene.idle_task, 2)])
        again = scene.ask(scene.task, OperationName.STATUS)  # long after a worker that does not read its queue is lost
        assert (again.worker, again.epoch, again.lost) == (scene.drained.id, 1, None)
        ended = scene.end_check()
        assert (ended.worker, ended.epoch, ended.lost) == (scene.drained.id, 1, None)
        after = scene.ask(scene.task, OperationName.SNAPSHOT)
        assert (after.worker, after.epoch) == (scene.free.id, 2)
    assert [one.id for one in scene.drained.checked] == [scene.check.id]


def test_a_reading_operation_that_a_worker_does_not_take_leaves_its_check_alone(
    temporal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of an earlier version, which reads its queue no more when it ends. Control: once the check has ended, the
    task goes on elsewhere.
    """

    async def end_at_once(_: WorkerSlots) -> None: ...

    monkeypatch.setattr(WorkerSlots, "drain", end_at_once)
    name = f"drain-{uuid.uuid4().hex[:8]}"
    reasons: list[str | None] = []

    def is_refused() -> bool:
        try:
            scene.ask(scene.task, OperationName.LOOK)  # it may still have been taken
        except SandboxError as error:
            reasons.append(error.reason)
        return bool(reasons)

    with draining(temporal, name) as scene:
        until(is_refused)
        assert reasons == ["worker_busy"]
        ended = scene.end_check()
        assert (ended.worker, ended.epoch, ended.lost) == (scene.drained.id, 1, None)
        after = scene.ask(scene.task, OperationName.LOOK)
        assert (after.worker, after.epoch) == (scene.free.id, 2)
        history = find_history(temporal, name, scene.task)
    asyncio.run(Replayer(workflows=[TaskWorkflow]).replay_workflow(history))


def test_a_history_of_an_earlier_version_whose_reading_operation_moved_the_task_can_be_repeated(temporal: str) -> None:
    name = f"drain-{uuid.uuid4().hex[:8]}"
    with draining(temporal, name, run_earlier_worker) as scene:
        until(lambda: scene.ask(scene.task, OperationName.STATUS).worker == scene.free.id)
        scene.end_check()
        history = find_history(temporal, name, scene.task)
    assert scene.free.taken_over == [(scene.task, 2)], "void: it was not moved"
    asyncio.run(Replayer(workflows=[TaskWorkflow]).replay_workflow(history))
