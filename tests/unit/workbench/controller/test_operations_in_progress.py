"""A controller is alive until its last operation has ended, also if its `with` block ended before."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.models import WorkspaceRequest
from sandbox.models.operations import OperationAnswer, OperationName, TaskOperation
from sandbox.store.home import Home
from sandbox.store.liveness import list_live_nonces
from sandbox.workbench import Workbench
from sandbox.workbench.controller.background_threads import BackgroundThread
from sandbox.workbench.controller.operations_in_progress import OperationsInProgress, count_operations
from sandbox.workspaces.workspace import Workspace

DEADLINE_S = 60.0
TASK = "task-12345678-1234-4123-8123-123456789abc"


@count_operations
class Counted:
    """As a controller: `run` is an operation."""

    def __init__(self) -> None:
        self._services = self
        self.operations = OperationsInProgress()

    def run(self, act: Callable[[], None]) -> None:
        act()


@pytest.fixture
def released() -> list[str]:
    return []


def test_a_release_waits_for_operations_of_other_threads_and_does_not_block(released: list[str]) -> None:
    counted, has_begun, may_end = Counted(), threading.Event(), threading.Event()

    def work() -> None:
        has_begun.set()
        assert may_end.wait(DEADLINE_S)

    threads = [threading.Thread(target=counted.run, args=(work,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert has_begun.wait(DEADLINE_S)
    counted.operations.call_after_last(lambda: released.append("all"))
    assert released == []
    may_end.set()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert released == ["all"]


def test_an_operation_that_fails_has_ended(released: list[str]) -> None:
    counted = Counted()

    def fail() -> None:
        counted.operations.call_after_last(lambda: released.append("all"))
        counted.run(lambda: None)  # one within another
        assert released == []
        raise ValueError("failed")

    with pytest.raises(ValueError, match="failed"):
        counted.run(fail)
    assert released == ["all"]
    counted.operations.call_after_last(lambda: released.append("again"))
    assert released == ["all", "again"]


def test_a_controller_is_alive_until_its_last_operation_has_ended(tmp_path: Path) -> None:
    workbench = Workbench(tmp_path / "home", environ={})
    services = workbench._services
    nonce, live = services.presence.nonce, services.home.liveness

    def leave() -> OperationAnswer:
        with workbench:
            pass
        assert list_live_nonces(live) == {nonce}
        return OperationAnswer(operation_id="one", task_id=TASK, epoch=1, worker=f"worker-{16 * '0'}")

    workbench.answer_once(TaskOperation(id="one", task_id=TASK, name=OperationName.STATUS), leave)
    assert list_live_nonces(live) == frozenset()


def test_a_scratch_workspace_keeps_its_controller_alive(tmp_path: Path) -> None:
    """Control: with the workspace goes the controller."""

    def acquire() -> tuple[Workspace, Home]:
        workbench = Workbench(tmp_path / "home", environ={})
        return workbench.acquire_workspace("ephemeral", WorkspaceRequest(tenant="t")), workbench._services.home

    workspace, home = acquire()
    workspace.write("a", b"1")
    gc.collect()
    with Workbench(tmp_path / "home", environ={}) as other:
        assert [found.id for found in other.list_workspaces("ephemeral")] == [workspace.id]
        assert workspace.read("a") == b"1"
    del workspace
    gc.collect()
    assert list_live_nonces(home.liveness) == frozenset()


def test_what_acts_for_a_client_ends_the_controller_of_both(tmp_path: Path) -> None:
    workbench = Workbench(tmp_path / "home", environ={})
    acting = workbench.acting(workbench.caller)
    assert acting._services.presence.nonce == workbench._services.presence.nonce
    acting.close()
    assert list_live_nonces(workbench._services.home.liveness) == frozenset()


def test_a_failing_release_is_no_failure_of_the_operation_that_ends_last(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counted = Counted()

    def fail() -> None:
        raise OSError("no such file")

    counted.run(lambda: counted.operations.call_after_last(fail))
    assert "was not released" in caplog.text


@pytest.mark.parametrize("method", ["verify", "run_checks", "map", "acting"])
def test_methods_of_the_workbench_are_operations(method: str) -> None:
    wrapper = getattr(Workbench, method)
    assert wrapper.__wrapped__
    assert wrapper.__code__.co_filename.endswith("operations_in_progress.py")


def test_a_forked_child_waits_for_no_thread_of_its_parent(tmp_path: Path) -> None:
    workbench, may_end = Workbench(tmp_path / "home", environ={}), threading.Event()
    services = workbench._services
    nonce = services.presence.nonce

    def run(_thread: BackgroundThread) -> None:
        may_end.wait(DEADLINE_S)

    services.background_threads.start("run-x", run)
    if (child := os.fork()) == 0:
        signal.alarm(20)
        services.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert list_live_nonces(services.home.liveness) == {nonce}
    may_end.set()
    services.close()
