"""Which worker of a cluster gets a task: one that has the clone and a free slot, else any with a free slot."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from temporalio.client import Client

from devtools.gitserver import GitServer
from sandbox.cluster import temporal_dispatcher
from sandbox.cluster.repository_key import make_repository_key
from sandbox.cluster.task_queues import name_offer_queue
from sandbox.cluster.worker_directory import list_readers
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.operations import OperationName, TaskOperation
from tests.e2e.clusters import Cluster, cluster_of, until
from tests.unit.conftest import refused

pytestmark = [pytest.mark.xdist_group("temporal"), pytest.mark.thorough]


@pytest.fixture
def cluster(temporal: str, git_server: GitServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for each test: the server remembers for minutes who read a queue."""
    with cluster_of(temporal, git_server, tmp_path_factory.mktemp("hosts")) as found:
        yield found


def worker_of(cluster: Cluster, task: str) -> str:
    return str(cluster.dispatcher.find_placement(task)["worker"])


def readers(cluster: Cluster) -> set[str]:
    """The workers that read the offers of the cluster's repository."""
    queue = name_offer_queue(cluster.name, make_repository_key(cluster.url))
    return cluster.dispatcher._wait(list_readers(cluster.dispatcher._client, queue))


@contextmanager
def busy(cluster: Cluster, task: str) -> Iterator[None]:
    """A check of the task runs in the body."""
    cluster.write(task, "", "wait")
    check = TaskOperation(
        id=uuid.uuid4().hex, task_id=task, name=OperationName.CHECK, arguments={"check_ids": ["build"]}
    )
    cluster.dispatcher.submit(check)
    until(lambda: cluster.has_begun(task))
    yield
    cluster.dispatcher.cancel(check)


def test_a_worker_that_has_the_clone_gets_the_task_although_another_is_idle(cluster: Cluster) -> None:
    """Also: it need not be told of a clone that it had when it was started."""
    first = cluster.start_worker("one")
    cluster.begin()
    second = cluster.start_worker("two")
    until(lambda: readers(cluster) == {first})
    assert {worker_of(cluster, cluster.begin()) for _ in range(6)} == {first}
    cluster.kill(first)
    assert cluster.start_worker("one") == first
    assert {worker_of(cluster, cluster.begin()) for _ in range(4)} == {first}
    assert second not in readers(cluster)


def test_a_worker_without_a_free_slot_takes_no_task_though_it_has_the_clone(cluster: Cluster) -> None:
    first = cluster.start_worker("one", slots=1)
    task = cluster.begin()
    second = cluster.start_worker("two", slots=1)
    with busy(cluster, task):
        assert worker_of(cluster, cluster.begin()) == second
    until(lambda: readers(cluster) == {first, second})


def test_a_task_of_a_dead_workers_repository_goes_to_another_after_a_moment(cluster: Cluster) -> None:
    first = cluster.start_worker("one")
    cluster.begin()
    second = cluster.start_worker("two")
    until(lambda: readers(cluster) == {first})
    cluster.kill(first)
    assert worker_of(cluster, cluster.begin()) == second


def test_a_full_cluster_says_so_and_keeps_the_place_in_the_line(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also: who leaves the line is not given a task."""
    monkeypatch.setattr(temporal_dispatcher, "BUSY_S", 1.0)
    worker = cluster.start_worker("one", slots=1)
    task = cluster.begin()
    waiting, leaving = (f"task-{uuid.uuid4()}" for _ in range(2))
    with busy(cluster, task):
        until(lambda: find_place(cluster, waiting) == 1)
        until(lambda: find_place(cluster, leaving) == 2)  # Temporal counts again every few seconds
        line = cluster.dispatcher.line()
        assert (line.tasks, line.workers) == (2, 1)
        assert line.oldest_s > 0
        cluster.dispatcher.cancel(TaskOperation(id="create", task_id=leaving, name=OperationName.CREATE))
        assert cluster.ask(task, OperationName.READ_FILE, {"path": "answer"}).error is None, "its own task goes on"
    placed = cluster.dispatcher.place(cluster.url, {"prompt": "Wait"}, waiting)
    assert (placed.error, placed.worker) == (None, worker)
    with refused(ErrorCode.CONFLICT):
        cluster.dispatcher.place(cluster.url, {"prompt": "Wait"}, leaving)
    assert worker_of(cluster, leaving) == ""


def find_place(cluster: Cluster, task: str) -> int:
    """The place in the line of a task that has to wait."""
    with pytest.raises(SandboxError) as caught:
        cluster.dispatcher.place(cluster.url, {"prompt": "Wait"}, task)
    assert (caught.value.code, caught.value.reason) == (ErrorCode.ENGINE_UNAVAILABLE, "cluster_busy")
    assert caught.value.data is not None
    assert caught.value.data["workers"] == 1
    return int(caught.value.data["place"])


def test_without_workers_a_caller_does_not_wait_for_ever_and_the_task_is_carried_out_later(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temporal_dispatcher, "BUSY_S", 1.0)
    monkeypatch.setattr(temporal_dispatcher, "NO_WORKER_S", 4.0)
    task = f"task-{uuid.uuid4()}"
    with pytest.raises(SandboxError) as caught:
        cluster.dispatcher.place(cluster.url, {"prompt": "Wait"}, task)
    assert caught.value.reason == "no_worker"
    worker = cluster.start_worker("one")
    assert cluster.dispatcher.place(cluster.url, {"prompt": "Wait"}, task).worker == worker
    cluster.kill(worker)
    with pytest.raises(SandboxError) as caught:
        cluster.ask(task, OperationName.STATUS)
    assert caught.value.reason == "no_worker"


def test_a_wait_ends_also_when_the_server_has_answered_that_there_is_nothing_yet(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does after 20 seconds, and the client asks again: with its own limit of one request, this did not end."""
    worker = cluster.start_worker("one")
    task = cluster.begin()
    cluster.write(task, "", "wait")
    check = TaskOperation(id="check", task_id=task, name=OperationName.CHECK, arguments={"check_ids": ["build"]})
    cluster.dispatcher.submit(check)
    until(lambda: cluster.has_begun(task))
    assert cluster.dispatcher.result(check, wait_s=22.0) is None
    cluster.kill(worker)
    monkeypatch.setattr(temporal_dispatcher, "NO_WORKER_S", 22.0)
    with pytest.raises(SandboxError) as caught:
        cluster.dispatcher.submit(TaskOperation(id="snapshot", task_id=task, name=OperationName.SNAPSHOT))
    assert caught.value.reason == "no_worker"


def test_a_worker_that_is_drained_ends_its_operation_and_its_tasks_go_on_elsewhere(cluster: Cluster) -> None:
    first = cluster.start_worker("one")
    task = cluster.begin()
    cluster.write(
        task, "right\n", sha256=cluster.ask(task, OperationName.READ_FILE, {"path": "answer"}).value["sha256"]
    )
    cluster.write(task, "", "pause")
    check = TaskOperation(
        id=uuid.uuid4().hex, task_id=task, name=OperationName.CHECK, arguments={"check_ids": ["build"]}
    )
    cluster.dispatcher.submit(check)
    until(lambda: cluster.has_begun(task))
    second = cluster.start_worker("two")

    assert cluster.dispatcher.drain(first).operations == 1
    cluster.let_go(task)
    answer = cluster.dispatcher.result(check)
    assert answer is not None
    assert (answer.error, answer.worker) == (None, first)
    assert cluster.wait_for_end(first) == 0

    content = cluster.ask(task, OperationName.READ_FILE, {"path": "answer"})
    assert (content.worker, content.error) == (second, None)
    with refused(ErrorCode.NOT_FOUND):
        cluster.dispatcher.drain(first)
    assert cluster.dispatcher.drain(second).operations == 0, "the last one can be drained, too"
    assert cluster.wait_for_end(second) == 0


def test_tasks_that_come_at_once_are_each_created_once(cluster: Cluster) -> None:
    for name in ("one", "two"):
        cluster.start_worker(name, slots=1)
    with ThreadPoolExecutor(8) as pool:
        tasks = list(pool.map(lambda _: cluster.begin(), range(12)))
    assert {worker_of(cluster, task) for task in tasks} == set(cluster.workers)
    assert asyncio.run(count_operations(cluster, tasks)) == Counter(dict.fromkeys(tasks, 1))


async def count_operations(cluster: Cluster, tasks: list[str]) -> Counter[str]:
    """How often each task's workers were asked for an operation, as the server remembers it."""
    client, counted = await Client.connect(cluster.address), Counter[str]()
    for task in tasks:
        history = await client.get_workflow_handle(f"{cluster.name}-{task}").fetch_history()
        scheduled = [event.activity_task_scheduled_event_attributes for event in history.events]
        counted[task] = sum(one.activity_type.name == "perform" for one in scheduled)
    return counted
