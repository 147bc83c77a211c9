"""Who cancels a request on one host, cancels it on a cluster."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from sandbox.checks.cancellation import Cancellation
from sandbox.cluster import remote_checks
from sandbox.cluster.asked_operations import AskedOperations
from sandbox.cluster.cluster_workbench import ClusterWorkbench
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Task
from sandbox.models.operations import OperationAnswer, TaskOperation
from sandbox.store import placed_tasks
from sandbox.store.home import Home
from sandbox.workbench import Watch, Workbench
from tests.unit.cluster.test_cluster_workbench import RECORD

TASK = f"task-{uuid4()}"


class Endless:
    """A dispatcher on which checks run until they are cancelled."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self.waited_s = 0.0
        self._is_over = threading.Event()

    def submit(self, operation: TaskOperation, *, is_new: bool = False) -> None: ...

    def result(self, operation: TaskOperation, wait_s: float | None = None) -> OperationAnswer | None:
        if operation.name == "look":
            return self._answer(operation, {"runs": [], "journal_bytes": 0})
        limit_s = 60 if wait_s is None else wait_s
        self.waited_s += limit_s
        return self._answer(operation, []) if self._is_over.wait(limit_s) else None

    def cancel(self, operation: TaskOperation) -> None:
        self.cancelled.append(operation.name)
        self._is_over.set()

    def close(self) -> None: ...

    def _answer(self, operation: TaskOperation, value: object) -> OperationAnswer:
        worker = f"worker-{'1' * 16}"
        return OperationAnswer(operation_id=operation.id, task_id=TASK, epoch=1, worker=worker, value=value)


@pytest.fixture
def endless() -> Endless:
    return Endless()


@pytest.fixture
def workbench(endless: Endless, tmp_path: Path) -> ClusterWorkbench:
    dispatcher: Any = endless
    return ClusterWorkbench(Workbench(tmp_path / "home", environ={}), AskedOperations(lambda: dispatcher))


def test_a_check_whose_request_is_cancelled_is_cancelled(workbench: ClusterWorkbench, endless: Endless) -> None:
    token = Cancellation()
    token.set()
    assert workbench.run_checks(TASK, ["test"], Watch(cancelled=token.is_set)) == ()
    assert endless.cancelled == ["check"]


def test_a_cancelled_wait_ends_and_its_check_goes_on(workbench: ClusterWorkbench, endless: Endless) -> None:
    run = workbench.start_checks(TASK, ["test"]).run_id
    assert workbench.wait_run(run, 60, cancelled=lambda: True).state == "running"
    assert endless.waited_s < 60
    assert workbench.wait_run(run, 0.1).state == "running"
    assert endless.cancelled == []


def test_a_check_whose_client_has_gone_is_stopped_if_it_was_started_so(
    workbench: ClusterWorkbench, endless: Endless
) -> None:
    """As `agent.on_disconnect = "stop"` does it."""
    token = Cancellation()
    run = workbench.start_checks(TASK, ["test"], Watch(cancelled=token.is_set)).run_id
    assert workbench.wait_run(run, 0.1, cancelled=token.is_set).state == "running"
    token.set()
    assert workbench.wait_run(run, 60, cancelled=token.is_set).state == "finished"
    assert endless.cancelled == ["check"]


def test_only_the_request_that_started_a_check_stops_it(
    workbench: ClusterWorkbench, endless: Endless, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one that waits for it ends alone. Control: it waits on, for the whole time."""
    monkeypatch.setattr(remote_checks, "WAIT_S", 0.05)
    starter = Cancellation()
    run = workbench.start_checks(TASK, ["test"], Watch(cancelled=starter.is_set)).run_id
    for wait_s in (60, None):
        assert workbench.wait_run(run, wait_s, cancelled=lambda: True).state == "running"
    assert endless.waited_s < 60
    assert endless.cancelled == []
    starter.set()
    assert workbench.wait_run(run).state == "finished"
    assert endless.cancelled == ["check"]


def test_a_run_that_was_stopped_by_name_is_forgotten(workbench: ClusterWorkbench) -> None:
    run = workbench.start_checks(TASK, ["test"], Watch(cancelled=Cancellation().is_set)).run_id
    assert run in workbench._cancellations, "the control"
    workbench.stop_run(run)
    assert not workbench._cancellations


class Interrupted:
    """A dispatcher whose first wait for a fork is interrupted. `cancelling`: what its cancellation ends with.
    `by`: what interrupts it.
    """

    def __init__(self, cancelling: SandboxError | None, by: BaseException | None = None) -> None:
        self.cancelling, self.by = cancelling, by or KeyboardInterrupt()
        self.closed: list[str] = []
        self._is_cancelled = False

    def submit(self, operation: TaskOperation, *, is_new: bool = False) -> None:
        if operation.name == "close":
            self.closed.append(operation.task_id)

    def result(self, operation: TaskOperation, _wait_s: float | None = None) -> OperationAnswer:
        if not self._is_cancelled:
            raise self.by
        task_id = operation.arguments["fork_id"] if operation.name == "fork" else operation.task_id
        worker, value = f"worker-{'1' * 16}", {**RECORD, "id": task_id}
        return OperationAnswer(
            operation_id=operation.id, task_id=operation.task_id, epoch=1, worker=worker, value=value
        )

    def cancel(self, _operation: TaskOperation) -> None:
        self._is_cancelled = True
        if self.cancelling is not None:
            raise self.cancelling


@pytest.mark.parametrize("from_snapshot", [False, True], ids=["fork", "create"])
@pytest.mark.parametrize(
    ("cancelling", "closes", "error"),
    [
        (None, True, KeyboardInterrupt),
        (SandboxError(ErrorCode.NOT_FOUND, "it was not sent"), False, KeyboardInterrupt),
        (SandboxError(ErrorCode.NETWORK_ERROR, "no answer", reason="server_lost"), False, SandboxError),
    ],
    ids=["made", "not sent", "unknown"],
)
def test_a_fork_whose_request_is_interrupted_is_closed_or_named(
    tmp_path: Path, from_snapshot: bool, cancelling: SandboxError | None, closes: bool, error: type[BaseException]
) -> None:
    dispatcher: Any = Interrupted(cancelling)
    workbench = ClusterWorkbench(Workbench(tmp_path / "home", environ={}), AskedOperations(lambda: dispatcher))
    home, snapshot = Home(tmp_path / "home"), f"snap-{13 * '0'}-000000"
    placed_tasks.save_placed_task(home, Task.model_validate({**RECORD, "id": TASK}))
    placed_tasks.note_snapshots(home, TASK, [snapshot])
    create = partial(workbench.create_task, str(RECORD["repo_id"]), from_snapshot=snapshot)
    with pytest.raises(error) as caught:
        (create if from_snapshot else partial(workbench.fork_task, TASK))()
    assert [task.id for task in workbench.tasks()] == [TASK]
    assert (len(dispatcher.closed), TASK in dispatcher.closed) == (closes, False)
    if isinstance(caught.value, SandboxError):
        assert caught.value.reason == "creation_interrupted"
        assert caught.value.data is not None
        assert caught.value.data["task_id"] not in {TASK, None}


@pytest.mark.parametrize("is_made", [True, False])
@pytest.mark.parametrize("reason", ["cluster_busy", "no_worker"])
def test_a_fork_that_would_wait_in_the_line_leaves_it(tmp_path: Path, is_made: bool, reason: str) -> None:
    """One that was made meanwhile is closed. Control: another error leaves the operation as it is."""
    busy = SandboxError(ErrorCode.ENGINE_UNAVAILABLE, "it waits", reason=reason)
    cancelled = SandboxError(ErrorCode.CONFLICT, "it left the line", reason="cancelled")
    dispatcher: Any = Interrupted(None if is_made else cancelled, by=busy)
    workbench = ClusterWorkbench(Workbench(tmp_path / "home", environ={}), AskedOperations(lambda: dispatcher))
    placed_tasks.save_placed_task(Home(tmp_path / "home"), Task.model_validate({**RECORD, "id": TASK}))
    with pytest.raises(SandboxError) as caught:
        workbench.fork_task(TASK)
    leaves = reason == "cluster_busy"
    assert (caught.value.reason, "was not created" in caught.value.brief) == (reason, leaves)
    assert (dispatcher._is_cancelled, len(dispatcher.closed)) == (leaves, leaves and is_made)
    assert [task.id for task in workbench.tasks()] == [TASK]
