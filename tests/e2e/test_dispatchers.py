"""What callers may rely on, whichever dispatcher it is: that of this process, and that of a Temporal cluster."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import pytest

from devtools.gitserver import GitServer, introduce
from sandbox import Workbench
from sandbox.cluster.dispatcher import Dispatcher, LocalDispatcher, draw_task_id, name_fork
from sandbox.cluster.worker import ClusterWorker
from sandbox.errors import ErrorCode
from sandbox.models.operations import OperationAnswer, OperationName, TaskOperation
from tests.e2e.clusters import cluster_of, until
from tests.unit.conftest import refused

pytestmark = pytest.mark.xdist_group("temporal")


@dataclass(frozen=True)
class Given:
    """A dispatcher with a worker, and a repository."""

    dispatcher: Dispatcher
    url: str

    def begin(self) -> str:
        placed = self.dispatcher.place(self.url, {"prompt": "Answer right"})
        assert placed.error is None, placed.error
        return placed.task_id

    def ask(self, operation: TaskOperation) -> OperationAnswer:
        self.dispatcher.submit(operation)
        answer = self.dispatcher.result(operation)
        assert answer is not None
        return answer

    def is_checking(self, task: str) -> bool:
        return bool(self.ask(operation(task, OperationName.LOOK, {"places": {}})).value["runs"])


@pytest.fixture(scope="module", params=["this process", "Temporal"])
def given(
    request: pytest.FixtureRequest, temporal: str, git_server: GitServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Given]:
    base = tmp_path_factory.mktemp("dispatchers")
    with cluster_of(temporal, git_server, base) as cluster, ExitStack() as stack:
        if request.param == "Temporal":
            cluster.start_worker("worker", slots=4)
            yield Given(cluster.dispatcher, cluster.url)
        else:
            bench = stack.enter_context(Workbench(introduce(base / "home", git_server)))
            local = stack.enter_context(closing(LocalDispatcher(ClusterWorker(bench, publishes=True))))
            yield Given(local, cluster.url)


def operation(
    task: str, name: OperationName, arguments: Mapping[str, Any] | None = None, key: str = ""
) -> TaskOperation:
    return TaskOperation(id=key or uuid.uuid4().hex, task_id=task, name=name, arguments=arguments or {})


def write(task: str, path: str, content: str, key: str = "") -> TaskOperation:
    arguments = {"path": path, "content": base64.b64encode(content.encode()).decode(), "expected_sha256": None}
    return operation(task, OperationName.WRITE_FILE, arguments, key)


def test_s178_a_url_with_a_password_is_refused_before_it_is_sent(given: Given) -> None:
    """A server would keep it. Control: it knows no such task."""
    task = draw_task_id()
    with refused(ErrorCode.INVALID_INPUT):
        given.dispatcher.place(given.url.replace("https://", "https://a:token@"), {}, task)
    with refused(ErrorCode.NOT_FOUND):
        given.dispatcher.submit(operation(task, OperationName.STATUS))


def test_a_task_and_each_change_are_made_once_for_their_id(given: Given) -> None:
    """Control: the same change under another id meets its own result."""
    task = draw_task_id()
    placed = given.dispatcher.place(given.url, {"prompt": "Once"}, task)
    assert (placed.error, placed.task_id, placed.value["id"]) == (None, task, task)
    assert given.dispatcher.place(given.url, {"prompt": "Once"}, task) == placed
    first = given.ask(write(task, "new", "x", "first"))
    assert first.error is None, first.error
    assert given.ask(write(task, "new", "x", "first")) == first
    again = given.ask(write(task, "new", "x", "second"))
    assert again.error is not None
    assert again.error.code == "stale_hash"
    fork = operation(task, OperationName.FORK, key="fork")
    made = given.ask(fork)
    assert made.error is None, made.error
    assert (made.value["id"], made.value["forked_from"]) == (name_fork(fork), task)
    assert given.ask(fork) == made
    assert given.ask(operation(made.value["id"], OperationName.STATUS)).value["dirty"] is True


def test_what_was_not_asked_for_has_no_answer_and_an_unknown_task_takes_no_operation(given: Given) -> None:
    with refused(ErrorCode.NOT_FOUND):
        given.dispatcher.result(operation(given.begin(), OperationName.CHECK, key="never"), wait_s=1.0)
    with refused(ErrorCode.NOT_FOUND):
        given.dispatcher.submit(operation(draw_task_id(), OperationName.STATUS))


def test_what_an_operation_lacks_is_said_in_its_answer(given: Given) -> None:
    answer = given.ask(operation(given.begin(), OperationName.READ_FILE, {"path": "no-such-file"}))
    assert answer.error is not None
    assert (answer.error.code, answer.value) == ("not_found", None)


def test_changes_take_turns_reading_overtakes_and_what_is_cancelled_before_its_turn_does_not_begin(
    given: Given,
) -> None:
    task = given.begin()
    given.ask(write(task, "wait", ""))
    check = operation(task, OperationName.CHECK, {"check_ids": ["build"]}, "check")
    later = write(task, "later", "x", "later")
    cancelled = write(task, "cancelled", "x", "cancelled")
    given.dispatcher.submit(check)
    until(lambda: given.is_checking(task))
    with ThreadPoolExecutor(1) as other:
        given.dispatcher.submit(cancelled)
        given.dispatcher.submit(later)
        assert given.ask(operation(task, OperationName.READ_FILE, {"path": "answer"})).value["content"] == "wrong\n"
        assert given.dispatcher.result(later, wait_s=0.5) is None
        ending = other.submit(given.dispatcher.cancel, cancelled)
        assert given.dispatcher.result(cancelled, wait_s=1.0) is None, "it is answered in its turn"
        given.dispatcher.cancel(check)
        stopped = given.dispatcher.result(check)
        assert stopped is not None
        assert [run["verdict"] for run in stopped.value] == ["killed"]
        assert not given.is_checking(task)
        ending.result(60)
    with refused(ErrorCode.CONFLICT) as error:
        given.dispatcher.result(cancelled)
    assert error.value.reason == "cancelled"
    answer = given.dispatcher.result(later)
    assert answer is not None
    assert answer.error is None, answer.error
    changed = [change["path"] for change in given.ask(operation(task, OperationName.STATUS)).value["changes"]]
    assert sorted(changed) == ["later", "wait"]


def test_workers_are_listed_and_an_unknown_one_is_not_drained(given: Given) -> None:
    assert len(given.dispatcher.workers()) == 1
    assert given.dispatcher.line().workers == 1
    with pytest.raises(Exception, match="worker-0000"):
        given.dispatcher.drain("worker-0000000000000000")
