"""Answers as large as the server takes them, and what a task remembers of them. The server and the worker's queues are
real; the worker answers without doing anything.
"""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from devtools.temporalserver import temporal_server
from sandbox.cluster import temporal_dispatcher
from sandbox.cluster.task_queues import ANSWER_BYTES, ARGUMENT_BYTES
from sandbox.cluster.temporal_dispatcher import TemporalDispatcher
from sandbox.errors import ErrorCode
from sandbox.models.operations import OperationAnswer, OperationName, TaskOperation
from tests.e2e.clusters import connected
from tests.e2e.test_line_of_tasks import URL, Recorder, working
from tests.unit.conftest import refused

pytestmark = pytest.mark.xdist_group("temporal")


def ask(
    dispatcher: TemporalDispatcher, task: str, name: OperationName, key: str = "", **arguments: Any
) -> OperationAnswer:
    asked = TaskOperation(id=key or uuid.uuid4().hex, task_id=task, name=name, arguments=arguments)
    dispatcher.submit(asked)
    answer = dispatcher.result(asked)
    assert answer is not None
    return answer


@pytest.mark.parametrize("letter", ["a", "\u6c49", "\U0001f600", "\x01"], ids=["ascii", "han", "emoji", "control"])
def test_an_answer_that_the_server_would_refuse_is_refused_by_its_worker(temporal: str, letter: str) -> None:
    """Whatever its text is: the server counts what the client library sends, which escapes all but ASCII. Control:
    shorter ones of the same letters are answered, and arguments are held against the same measure.
    """
    name = f"large-{uuid.uuid4().hex[:8]}"
    with connected(temporal, name) as dispatcher, working(temporal, name) as worker:
        worker.may_end.set()
        task = dispatcher.place(URL, {}).task_id
        worker.value = {"content": letter * (ANSWER_BYTES - 10_000)}
        long = ask(dispatcher, task, OperationName.READ_FILE, path="a")
        assert long.worker == worker.id
        assert (long.error.code if long.error else "") == ("" if letter == "a" else "quota_exceeded")
        assert dispatcher.find_placement(task)["epoch"] == 1, "its worker is not lost"
        worker.value = {"content": letter * 10_000}
        assert ask(dispatcher, task, OperationName.READ_FILE, path="a").value == worker.value
        with refused(ErrorCode.QUOTA_EXCEEDED):
            ask(dispatcher, task, OperationName.READ_FILE, path=letter * ARGUMENT_BYTES)


def end_together(worker: Recorder, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations of the worker end when so many have begun, or a second after they began."""
    barrier, perform = threading.Barrier(count), worker.perform

    def wait(operation: TaskOperation, cancelled: object) -> OperationAnswer:
        with suppress(threading.BrokenBarrierError):
            barrier.wait(1.0)
        return perform(operation, cancelled)

    monkeypatch.setattr(worker, "perform", wait)


@pytest.mark.parametrize("name", [OperationName.READ_FILE, OperationName.CHECK], ids=["answers", "arguments"])
def test_a_task_is_not_ended_by_many_large_operations_at_once(
    temporal: str, monkeypatch: pytest.MonkeyPatch, name: OperationName
) -> None:
    """The server ends a workflow that sends it more than 4 MiB in one step."""
    cluster = f"large-{uuid.uuid4().hex[:8]}"
    with (
        connected(temporal, cluster) as dispatcher,
        working(temporal, cluster) as worker,
        ThreadPoolExecutor(6) as callers,
    ):
        worker.may_end.set()
        task = dispatcher.place(URL, {}).task_id
        worker.value = {"content": "a" * (ANSWER_BYTES - 10_000)}
        end_together(worker, 6 if name is OperationName.READ_FILE else 1, monkeypatch)
        path = "a" * (1 if name is OperationName.READ_FILE else ARGUMENT_BYTES - 10_000)
        asked = [callers.submit(ask, dispatcher, task, name, path=path) for _ in range(6)]
        assert [one.result().value for one in asked] == [worker.value] * 6
        assert ask(dispatcher, task, OperationName.STATUS).value == worker.value


def test_callers_of_more_operations_than_the_server_takes_at_once_are_told_that_the_task_is_busy(
    temporal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes ten of a task, or a few more while it is busy. The control: those that it refused are answered when the
    others have ended.
    """
    cluster, count = f"large-{uuid.uuid4().hex[:8]}", 14
    with (
        connected(temporal, cluster) as dispatcher,
        working(temporal, cluster) as worker,
        ThreadPoolExecutor(count) as callers,
    ):
        task = dispatcher.place(URL, {}).task_id
        checks = [TaskOperation(id=f"check-{n}", task_id=task, name=OperationName.CHECK) for n in range(count)]
        with monkeypatch.context() as soon:
            soon.setattr(temporal_dispatcher, "NO_WORKER_S", 10.0)
            sent = [callers.submit(dispatcher.submit, check) for check in checks]
            reasons = [getattr(one.exception(), "reason", None) for one in sent]
        assert set(reasons) == {None, "task_busy"}
        assert reasons.count(None) >= 10
        worker.may_end.set()
        for check in checks:
            dispatcher.submit(check)
            answer = dispatcher.result(check)
            assert answer is not None
            assert answer.error is None


def test_a_task_is_not_ended_by_large_changes_of_several_processes_at_once(temporal: str) -> None:
    """Each dispatcher is one of a process. The server gets the arguments back of all that it is refused in one step."""
    cluster, count = f"large-{uuid.uuid4().hex[:8]}", 8
    with ExitStack() as stack, ThreadPoolExecutor(count) as callers:
        dispatchers = [stack.enter_context(connected(temporal, cluster)) for _ in range(count)]
        stack.enter_context(working(temporal, cluster)).may_end.set()
        task = dispatchers[0].place(URL, {}).task_id
        together = threading.Barrier(count)

        def change(dispatcher: TemporalDispatcher) -> OperationAnswer:
            together.wait()
            return ask(dispatcher, task, OperationName.CHECK, path="a" * (ARGUMENT_BYTES - 10_000))

        asked = [callers.submit(change, dispatcher) for dispatcher in dispatchers]
        assert [one.result().error for one in asked] == [None] * count
        assert ask(dispatchers[0], task, OperationName.STATUS).error is None


def test_a_task_with_many_large_answers_goes_on_when_its_history_is_begun_anew(tmp_path: Path) -> None:
    """It takes along the newest, as many as the server takes. Control: the history is another one."""
    name, short = f"large-{uuid.uuid4().hex[:8]}", "limit.historyCount.suggestContinueAsNew=100"
    with (
        temporal_server(tmp_path / "log", short) as address,
        connected(address, name) as dispatcher,
        working(address, name) as worker,
    ):
        worker.may_end.set()
        task = dispatcher.place(URL, {}).task_id
        worker.value = {"output": "a" * 300_000}
        began = dispatcher._wait(dispatcher._handle(task).describe()).run_id
        for number in range(40):
            assert ask(dispatcher, task, OperationName.CHECK, f"check-{number}", check_ids=["test"]).error is None
            if dispatcher._wait(dispatcher._handle(task).describe()).run_id != began:
                break
        assert dispatcher._wait(dispatcher._handle(task).describe()).run_id != began
        assert ask(dispatcher, task, OperationName.CHECK, "later", check_ids=["test"]).value == worker.value
        last = TaskOperation(id=f"check-{number}", task_id=task, name=OperationName.CHECK)
        assert getattr(dispatcher.result(last), "value", None) == worker.value
