"""Workers of the version before requirements and of this one serve a cluster together."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from itertools import repeat
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer
from temporalio.worker import Worker as TemporalPoller
from temporalio.workflow import NondeterminismError

from sandbox.cluster import temporal_worker
from sandbox.cluster.dispatcher import PlacementTerms
from sandbox.cluster.task_queues import TaskStart
from sandbox.cluster.task_workflow import TaskWorkflow
from sandbox.cluster.temporal_worker import TaskOffers, WorkerActivities, WorkerEnd, run_worker
from sandbox.cluster.worker_slots import WorkerSlots
from sandbox.errors import ErrorCode
from sandbox.models.operations import OperationName, TaskOperation, WorkerInfo
from tests.e2e import earlier_task_workflow as earlier
from tests.e2e.clusters import connected, until
from tests.e2e.test_line_of_tasks import URL, Recorder, working
from tests.unit.conftest import refused

pytestmark = pytest.mark.xdist_group("temporal")


async def run_earlier_worker(
    client: Client, worker: Any, prefix: str, slots: WorkerSlots, until: asyncio.Event, announce: Callable[[str], None]
) -> None:
    """`run_worker` of the earlier version, without the queues of repositories."""
    activities = WorkerActivities(worker, slots, lambda _: None)
    offers = TaskOffers(worker, slots, WorkerInfo(id=worker.id), "", lambda _: None)
    own = (activities.perform, activities.take_over, WorkerEnd(slots, until).drain)
    poll = partial(temporal_worker._poll, client)
    async with AsyncExitStack() as stack:
        workflows = (earlier.TaskWorkflow, earlier.DrainWorkflow)
        await stack.enter_async_context(poll(f"{prefix}-tasks", worker.id, workflows))
        await stack.enter_async_context(poll(earlier.name_worker_queue(prefix, worker.id), worker.id, (), own))
        queue = earlier.name_offer_queue(prefix)
        supplier = temporal_worker._WhenOfferCanBeTaken(slots, worker.has_room)
        await stack.enter_async_context(poll(queue, worker.id, (), (offers.offer,), supplier))
        announce(worker.id)
        await until.wait()


def test_steps_of_a_task_are_done_by_either_version_and_requirements_only_by_the_newer(
    temporal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker keeps a workflow in memory, so each of its steps is replayed from its history by any of them."""
    monkeypatch.setattr(temporal_worker, "TemporalPoller", partial(TemporalPoller, max_cached_workflows=0))
    name = f"upgrade-{uuid.uuid4().hex[:8]}"
    with (
        connected(temporal, name) as dispatcher,
        working(temporal, name, run=run_earlier_worker) as old,
        working(temporal, name, {"gpu": "yes"}, run=run_worker) as new,
    ):
        old.may_end.set()
        new.may_end.set()
        tasks = [dispatcher.place(URL, {}).task_id for _ in range(4)]
        for index, task in enumerate(tasks * 3):
            asked = TaskOperation(id=f"snapshot-{index}", task_id=task, name=OperationName.SNAPSHOT)
            dispatcher.submit(asked)
            answer = dispatcher.result(asked)
            assert answer is not None
            assert answer.error is None
        assert sorted(old.created + new.created) == sorted(tasks)
        required = [dispatcher.place(URL, {}, terms=PlacementTerms(requirements={"gpu": "yes"})) for _ in range(2)]
        assert {one.worker for one in required} == {new.id}
        assert {one.id: one.version for one in dispatcher.workers()} == {old.id: "", new.id: ""}
        histories = asyncio.run(fetch(temporal, name, tasks))
        newer = asyncio.run(fetch(temporal, name, [required[0].task_id]))[0]

    assert count_failed_steps([*histories, newer]) == 0
    assert set().union(*map(list_authors, histories)) >= {old.id, new.id}, "void: only one of them had work"
    assert {author.split()[0] for author in list_authors(newer)} == {new.id}
    for history in histories:
        asyncio.run(Replayer(workflows=[earlier.TaskWorkflow]).replay_workflow(history))
        asyncio.run(Replayer(workflows=[TaskWorkflow]).replay_workflow(history))
    with pytest.raises(NondeterminismError):  # control: why a worker of the earlier version must not have it
        asyncio.run(Replayer(workflows=[earlier.TaskWorkflow]).replay_workflow(newer))


def test_a_history_that_ends_early_has_no_step_that_an_earlier_version_cannot_do(
    temporal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Controls: a task has begun a new history, and both versions did steps. Only the version that takes the first step
    of a long history can end it early: tasks are made until the newer one did. With a slow caller both take turns and
    each task has an even number of steps, so the same one would take it in each task: some are asked once more.
    """
    monkeypatch.setattr(temporal_worker, "TemporalPoller", partial(TemporalPoller, max_cached_workflows=0))
    monkeypatch.setattr("sandbox.cluster.temporal_dispatcher.TaskStart", partial(TaskStart, renewed_events=30))
    name = f"upgrade-{uuid.uuid4().hex[:8]}"
    tasks: list[str] = []
    first: list[str] = []
    last: list[str] = []
    with (
        connected(temporal, name) as dispatcher,
        working(temporal, name, run=run_earlier_worker) as old,
        working(temporal, name, run=run_worker) as new,
    ):
        old.may_end.set()
        new.may_end.set()
        while len(tasks) < 3 or (set(first) <= set(last) and len(tasks) < 12):
            task = dispatcher.place(URL, {}).task_id
            tasks.append(task)
            first += asyncio.run(find_runs(temporal, name, [task]))
            if len(tasks) % 2:
                dispatcher.find_placement(task)
            for index in range(6):
                asked = TaskOperation(id=f"snapshot-{index}", task_id=task, name=OperationName.SNAPSHOT)
                dispatcher.submit(asked)
                answer = dispatcher.result(asked)
                assert answer is not None
                assert answer.error is None
            last = asyncio.run(find_runs(temporal, name, tasks))
        histories = asyncio.run(fetch(temporal, name, tasks, first))
        histories += asyncio.run(fetch(temporal, name, tasks))
    assert set(first) - set(last), "void: no history ended early"
    assert count_failed_steps(histories) == 0
    assert set().union(*map(list_authors, histories)) >= {old.id, new.id}, "void: only one of them had work"


def test_an_answer_of_a_history_that_ended_is_known_beside_a_worker_of_an_earlier_version(
    temporal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which cannot say it. The answer is asked for when a new history has begun, as a slow caller does now and then.

    Controls: the history is another one, and none knows of what was not asked.
    """
    monkeypatch.setattr("sandbox.cluster.temporal_dispatcher.TaskStart", partial(TaskStart, renewed_events=8))
    name = f"upgrade-{uuid.uuid4().hex[:8]}"
    with connected(temporal, name) as dispatcher:
        with working(temporal, name, run=run_worker) as new:
            new.may_end.set()
            task = dispatcher.place(URL, {}).task_id
            asked = [
                TaskOperation(id=f"snapshot-{index}", task_id=task, name=OperationName.SNAPSHOT) for index in range(3)
            ]
            for one in asked:
                (before,) = asyncio.run(find_runs(temporal, name, [task]))
                dispatcher.submit(one)
                until(lambda: asyncio.run(find_runs(temporal, name, [task])) != [before])  # noqa: B023 - called here
        with working(temporal, name, run=run_earlier_worker):
            answers = [dispatcher.result(one) for one in asked]
            with refused(ErrorCode.NOT_FOUND):
                dispatcher.result(asked[0].model_copy(update={"id": "never-asked"}))
    assert [(one.operation_id, one.worker, one.error) for one in answers if one] == [
        (one.id, new.id, None) for one in asked
    ]


async def find_runs(address: str, name: str, tasks: list[str]) -> list[str]:
    """Their present histories."""
    client = await Client.connect(address)
    found = [await client.get_workflow_handle(f"{name}-{task}").describe() for task in tasks]
    return [str(one.run_id) for one in found]


async def fetch(address: str, name: str, tasks: list[str], runs: list[str] | None = None) -> list[WorkflowHistory]:
    """`runs`: which histories; None: the present ones."""
    client = await Client.connect(address)
    asked = zip(tasks, runs or repeat(None, len(tasks)), strict=True)
    return [await client.get_workflow_handle(f"{name}-{task}", run_id=run).fetch_history() for task, run in asked]


def count_failed_steps(histories: list[WorkflowHistory]) -> int:
    failed = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
    return sum(event.event_type == failed for history in histories for event in history.events)


def list_authors(history: WorkflowHistory) -> set[str]:
    """Who did the steps of a workflow."""
    done = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    return {
        event.workflow_task_completed_event_attributes.identity for event in history.events if event.event_type == done
    }


def test_an_operation_of_a_newer_version_is_refused_by_name() -> None:
    async def ask() -> dict[str, Any]:
        worker: Any = Recorder({})
        activities = WorkerActivities(worker, WorkerSlots(1), lambda _: None)
        task = f"task-{uuid.uuid4()}"
        return await activities.perform({"id": "one", "task_id": task, "epoch": 1, "name": "teleport", "arguments": {}})

    error = asyncio.run(ask())["error"]
    assert (error["code"], error["reason"]) == ("invalid_input", "unknown_operation")
    assert "does not know the operation 'teleport'" in error["brief"]
