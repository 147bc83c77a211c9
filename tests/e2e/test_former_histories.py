"""What is known of an operation when its task has begun a new history. The server and the worker's queues are real."""

from __future__ import annotations

import asyncio
import time
import uuid
from functools import partial
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateHandle
from temporalio.service import RetryConfig, RPCError, RPCStatusCode

from sandbox.cluster import former_histories, task_updates
from sandbox.cluster.task_queues import TaskStart
from sandbox.cluster.task_workflow import KEPT_ANSWERS, TaskWorkflow
from sandbox.cluster.temporal_dispatcher import TemporalDispatcher
from sandbox.errors import ErrorCode
from sandbox.models.operations import OperationName, TaskOperation
from tests.e2e.clusters import connected, until
from tests.e2e.test_line_of_tasks import URL, Recorder, make_check, working
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


def cancel_one(dispatcher: TemporalDispatcher, worker: Recorder) -> tuple[TaskOperation, TaskOperation]:
    """A check that was carried out, and one behind it that was cancelled; a new history has begun since."""
    task = dispatcher.place(URL, {}).task_id
    running, behind = make_check(task), make_check(task)
    run = find_run(dispatcher, task)
    for one in (running, behind):
        dispatcher.submit(one)
    dispatcher._wait(dispatcher._handle(task).signal(TaskWorkflow.cancel, behind.id))
    worker.may_end.set()
    until(lambda: find_run(dispatcher, task) != run)
    return running, behind


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
        running, behind = cancel_one(dispatcher, worker)
        assert dispatcher.result(running) is not None
        with refused(ErrorCode.CONFLICT) as caught:
            dispatcher.result(behind)
        assert caught.value.reason == "cancelled"
    assert [one.id for one in worker.checked] == [running.id]


def test_what_was_never_asked_for_is_known_without_a_worker(
    temporal: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_updates, "FORMER_S", 20.0)  # far more than a look takes on a busy host
    with connected(temporal, name) as dispatcher:
        with working(temporal, name) as worker:
            worker.may_end.set()
            task = dispatcher.place(URL, {}).task_id
            submit_and_outlast(dispatcher, TaskOperation(id="one", task_id=task, name=OperationName.SNAPSHOT))
        for one in (OperationName.SNAPSHOT, OperationName.STATUS):
            began = time.monotonic()
            with refused(ErrorCode.NOT_FOUND):
                dispatcher.result(TaskOperation(id="never-asked", task_id=task, name=one), wait_s=0.1)
            assert time.monotonic() - began < task_updates.FORMER_S


@pytest.mark.parametrize("asked", [OperationName.STATUS, OperationName.STOP_CHECKS])
def test_an_operation_that_is_submitted_again_is_not_carried_out_again(
    temporal: str, name: str, asked: OperationName
) -> None:
    """A task does not keep the answers of these. Control: one with another id is carried out."""
    with connected(temporal, name) as dispatcher, working(temporal, name) as worker:
        worker.may_end.set()
        operation = TaskOperation(id="first", task_id=dispatcher.place(URL, {}).task_id, name=asked)
        submit_and_outlast(dispatcher, operation)
        for one in (operation, operation.model_copy(update={"id": "second"})):
            dispatcher.submit(one)
            answer = dispatcher.result(one)
            assert answer is not None
            assert answer.operation_id == one.id
    assert [one.id for one in worker.checked] == ["first", "second"]


def test_an_operation_that_was_cancelled_is_not_carried_out_when_it_is_submitted_again(
    temporal: str, name: str
) -> None:
    with connected(temporal, name) as dispatcher, working(temporal, name) as worker:
        running, behind = cancel_one(dispatcher, worker)
        dispatcher.submit(behind)
        with refused(ErrorCode.CONFLICT) as caught:
            dispatcher.result(behind)
        assert caught.value.reason == "cancelled"
    assert [one.id for one in worker.checked] == [running.id]


def test_operations_are_carried_out_once_when_the_task_has_forgotten_their_answers(
    temporal: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the creation, which has the same id in each task."""
    monkeypatch.setattr("sandbox.cluster.temporal_dispatcher.TaskStart", partial(TaskStart, renewed_events=500))
    with connected(temporal, name) as dispatcher, working(temporal, name) as worker:
        worker.may_end.set()
        task = dispatcher.place(URL, {}).task_id
        asked = [
            TaskOperation(id=f"snapshot-{n}", task_id=task, name=OperationName.SNAPSHOT)
            for n in range(KEPT_ANSWERS + 1)
        ]
        for one in asked:
            dispatcher.submit(one, is_new=True)
            dispatcher.result(one)
        for key in ("create", asked[0].id):
            assert dispatcher._wait(dispatcher._handle(task).query(TaskWorkflow.answer, key)) is None
        assert dispatcher.place(URL, {}, task).error is None
        dispatcher.submit(asked[0])
        assert dispatcher.result(asked[0]) is not None
    assert worker.created == [task]
    assert [one.id for one in worker.checked] == [one.id for one in asked]


def test_an_operation_is_carried_out_once_when_the_server_is_lost_before_it_says_that_it_took_it(
    temporal: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task begins a new history before it is sent again. The client library does not send it again, either."""
    send, sent = task_updates._Submission._try_once, list[object]()

    with connected(temporal, name) as dispatcher, working(temporal, name) as worker:
        worker.may_end.set()
        task = dispatcher.place(URL, {}).task_id
        present = find_run(dispatcher, task)

        async def lose(submission: task_updates._Submission) -> Any:
            sent.append(await send(submission))
            while (await dispatcher._handle(task).describe()).run_id == present:
                await asyncio.sleep(0.05)
            raise RPCError("connection reset", RPCStatusCode.UNAVAILABLE, b"")

        monkeypatch.setattr(task_updates._Submission, "_try_once", lose)
        operation = TaskOperation(id="first", task_id=task, name=OperationName.STOP_CHECKS)
        dispatcher.submit(operation, is_new=True)
        assert dispatcher.result(operation) is not None
        assert dispatcher._client.service_client.config.retry_config == RetryConfig(max_retries=1)
    assert len(sent) == 1
    assert [one.id for one in worker.checked] == ["first"]


def test_an_operation_is_carried_out_once_when_its_history_ends_while_it_is_looked_for(
    temporal: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was in progress in the present history, so no earlier one has it. Then the present one is an earlier one."""
    look, found = former_histories.read_former, list[Any]()

    with connected(temporal, name) as dispatcher, working(temporal, name) as worker:
        task = dispatcher.place(URL, {}).task_id
        operation = TaskOperation(id="first", task_id=task, name=OperationName.STOP_CHECKS)
        dispatcher.submit(operation, is_new=True)
        until(lambda: bool(worker.checked))

        async def look_long(*arguments: Any) -> Any:
            found.append(await look(*arguments))
            worker.may_end.set()
            while (await dispatcher._handle(task).describe()).run_id == found[0].present:
                await asyncio.sleep(0.05)
            return found[-1]

        monkeypatch.setattr(task_updates, "read_former", look_long)
        dispatcher.submit(operation)
        assert dispatcher.result(operation) is not None
    assert found[0].value is None
    assert [one.id for one in worker.checked] == [operation.id]


def test_an_operation_with_a_new_id_is_not_looked_for(
    temporal: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: one that may have been submitted before is."""
    looks = list[str]()

    async def look(_client: object, _workflow: str, update: str, _read: object) -> Any:
        looks.append(update)
        return former_histories.FormerLook(None, present[0], is_complete=True)

    with connected(temporal, name) as dispatcher, working(temporal, name) as worker:
        worker.may_end.set()
        task = dispatcher.place(URL, {}).task_id
        present = [find_run(dispatcher, task)]
        monkeypatch.setattr(task_updates, "read_former", look)
        for key, is_new in (("known", False), ("new", True)):
            dispatcher.submit(TaskOperation(id=key, task_id=task, name=OperationName.SNAPSHOT), is_new=is_new)
    assert looks == ["known"]


def test_an_answer_of_a_history_that_the_server_removed_is_known_to_a_worker(
    temporal: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a worker there is no answer, and one deadline holds for the whole look. The server takes half a minute to
    remove a history, so none of them is looked at here.
    """
    monkeypatch.setattr(former_histories, "MOST_FORMER", 0)
    with connected(temporal, name) as dispatcher:
        with working(temporal, name) as worker:
            worker.may_end.set()
            task = dispatcher.place(URL, {}).task_id
            asked = TaskOperation(id="snapshot", task_id=task, name=OperationName.SNAPSHOT)
            submit_and_outlast(dispatcher, asked)
        began = time.monotonic()
        assert dispatcher.result(asked, wait_s=0.1) is None
        assert time.monotonic() - began < task_updates.QUERY.total_seconds()
        with working(temporal, name):
            answer = dispatcher.result(asked)
    assert answer is not None
    assert answer.worker == worker.id


def test_what_a_closing_history_refuses_is_sent_to_the_present_one(
    temporal: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under load the server said so of a former history for a minute, with the status of a busy task."""
    send, sent = task_updates._Submission._try_once, list[str]()
    with connected(temporal, name) as dispatcher, working(temporal, name) as worker:
        worker.may_end.set()
        task = dispatcher.place(URL, {}).task_id
        first = find_run(dispatcher, task)

        async def refuse(submission: task_updates._Submission) -> Any:
            if submission._operation.id != "late" or submission._run != first:
                return await send(submission)
            if not sent:
                other = TaskOperation(id="other", task_id=task, name=OperationName.SNAPSHOT)
                await asyncio.to_thread(submit_and_outlast, dispatcher, other)
            sent.append(first)
            assert len(sent) < 10, "it is sent to the former history again and again"
            raise RPCError("the workflow is closing", RPCStatusCode.RESOURCE_EXHAUSTED, b"")

        monkeypatch.setattr(task_updates._Submission, "_try_once", refuse)
        late = TaskOperation(id="late", task_id=task, name=OperationName.SNAPSHOT)
        dispatcher.submit(late)
        assert dispatcher.result(late) is not None
    assert [one.id for one in worker.checked if one.id == "late"] == ["late"]


def test_what_a_former_history_aborted_is_sent_to_the_present_one(
    temporal: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under load the server said for minutes of an operation that came while a history ended, that this is closing. One
    that it says so of for a moment, and that the history had accepted, is not carried out again.
    """
    asked, first = list[str](), list[str]()
    read = WorkflowUpdateHandle.result

    async def refuse(update: WorkflowUpdateHandle[Any], **options: Any) -> Any:
        if update.workflow_run_id in first:
            asked.append(update.id)
            if update.id == "late" or asked.count(update.id) < 3:
                assert len(asked) < 10, "the former history is asked again and again"
                raise RPCError("the workflow is closing", RPCStatusCode.RESOURCE_EXHAUSTED, b"")
        return await read(update, **options)

    with connected(temporal, name) as dispatcher, working(temporal, name) as worker:
        worker.may_end.set()
        task = dispatcher.place(URL, {}).task_id
        first.append(find_run(dispatcher, task))
        early, late = (TaskOperation(id=key, task_id=task, name=OperationName.STATUS) for key in ("early", "late"))
        submit_and_outlast(dispatcher, early)
        monkeypatch.setattr(WorkflowUpdateHandle, "result", refuse)
        for one in (early, late):
            dispatcher.submit(one)
            answer = dispatcher.result(one)
            assert answer is not None
            assert answer.operation_id == one.id
    assert [one.id for one in worker.checked] == ["early", "late"]
    assert asked.count("early") >= 3
    assert asked.count("late") >= 1
