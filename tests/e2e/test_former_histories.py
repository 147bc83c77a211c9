"""What is known of an operation when its task has begun a new history. The server and the worker's queues are real."""

from __future__ import annotations

import uuid
from functools import partial

import pytest

from sandbox.cluster import former_histories, temporal_dispatcher
from sandbox.cluster.task_queues import TaskStart
from sandbox.cluster.task_workflow import TaskWorkflow
from sandbox.cluster.temporal_dispatcher import TemporalDispatcher
from sandbox.errors import ErrorCode
from sandbox.models.operations import OperationName, TaskOperation
from tests.e2e.clusters import connected, until
from tests.e2e.test_line_of_tasks import URL, make_check, working
from tests.unit.conftest import refused

pytestmark = pytest.mark.xdist_group("temporal")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new history begins after each operation."""
    monkeypatch.setattr("sandbox.cluster.temporal_dispatcher.TaskStart", partial(TaskStart, renewed_events=8))


@pytest.fixture
def name() -> str:
    """Of a cluster."""
    return f"former-{uuid.uuid4().hex[:8]}"


def find_run(dispatcher: TemporalDispatcher, task: str) -> str:
    """The present history of a task."""
    return str(dispatcher._wait(dispatcher._handle(task).describe()).run_id)


def submit_and_outlast(dispatcher: TemporalDispatcher, operation: TaskOperation) -> None:
    """Returns when a new history has begun."""
    run = find_run(dispatcher, operation.task_id)
    dispatcher.submit(operation)
    until(lambda: find_run(dispatcher, operation.task_id) != run)


def test_answers_are_known_without_a_worker_and_are_not_made_again(temporal: str, name: str) -> None:
    """Control: there is none of what was not asked for."""
    with connected(temporal, name) as dispatcher:
        with working(temporal, name) as worker:
            worker.may_end.set()
            task = dispatcher.place(URL, {}).task_id
            asked = [
                TaskOperation(id=one, task_id=task, name=one)
                for one in (OperationName.SNAPSHOT, OperationName.STATUS, OperationName.STOP_CHECKS)
            ]
            for one in asked:
                submit_and_outlast(dispatcher, one)
            for other in ({"id": "never-asked"}, {"task_id": f"task-{uuid.uuid4()}"}):
                with refused(ErrorCode.NOT_FOUND):
                    dispatcher.result(asked[0].model_copy(update=other))
        answers = [dispatcher.result(one, wait_s=30.0) for one in asked]
    assert [one and one.operation_id for one in answers] == [one.id for one in asked]
    assert [one.id for one in worker.checked] == [one.id for one in asked]


def test_that_an_operation_was_cancelled_is_known(temporal: str, name: str) -> None:
    """A task keeps the answers of operations that were carried out, no others."""
    with connected(temporal, name) as dispatcher, working(temporal, name) as worker:
        task = dispatcher.place(URL, {}).task_id
        running, behind = make_check(task), make_check(task)
        run = find_run(dispatcher, task)
        for one in (running, behind):
            dispatcher.submit(one)
        dispatcher._wait(dispatcher._handle(task).signal(TaskWorkflow.cancel, behind.id))
        worker.may_end.set()
        until(lambda: find_run(dispatcher, task) != run)
        assert dispatcher.result(running) is not None
        with refused(ErrorCode.CONFLICT) as caught:
            dispatcher.result(behind)
        assert caught.value.reason == "cancelled"
    assert [one.id for one in worker.checked] == [running.id]


def test_an_answer_of_a_history_that_the_server_removed_is_known_to_a_worker(
    temporal: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a worker there is no answer in time. The server takes half a minute to remove a history, so none of them
    is looked at here.
    """
    monkeypatch.setattr(former_histories, "MOST_FORMER", 0)
    monkeypatch.setattr(temporal_dispatcher, "_FORMER_S", 1.0)
    with connected(temporal, name) as dispatcher:
        with working(temporal, name) as worker:
            worker.may_end.set()
            task = dispatcher.place(URL, {}).task_id
            asked = TaskOperation(id="snapshot", task_id=task, name=OperationName.SNAPSHOT)
            submit_and_outlast(dispatcher, asked)
        assert dispatcher.result(asked, wait_s=0.1) is None
        with working(temporal, name):
            answer = dispatcher.result(asked)
    assert answer is not None
    assert answer.worker == worker.id
