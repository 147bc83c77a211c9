"""A push on a cluster whose controller that publishes is missing, or is killed in the middle of it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from devtools.gitserver import GitServer
from devtools.host_speed import slowness
from sandbox import Workbench
from sandbox.cluster.publisher import ClusterPublisher
from sandbox.errors import SandboxError
from sandbox.models import Actor, ApprovalState
from sandbox.models.operations import OperationAnswer, OperationName, TaskOperation
from tests.e2e.clusters import Cluster, cluster_of, connected, until
from tests.e2e.test_line_of_tasks import URL, working

pytestmark = [pytest.mark.xdist_group("temporal"), pytest.mark.thorough]
PUBLISHER_S = 5.0
COMMIT = "0" * 40


@pytest.fixture(scope="module")
def cluster(temporal: str, git_server: GitServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Whose tasks notice the end of a controller that publishes after `PUBLISHER_S`."""
    with cluster_of(temporal, git_server, tmp_path_factory.mktemp("failures")) as found:
        found.start_worker("worker")
        with connected(temporal, found.name, PUBLISHER_S) as dispatcher:
            yield replace(found, dispatcher=dispatcher)


def commit_answer(cluster: Cluster) -> tuple[str, str, str]:
    """A task with one commit: its id, the commit, and its branch."""
    task = cluster.begin()
    cluster.write(
        task, "right\n", sha256=cluster.ask(task, OperationName.READ_FILE, {"path": "answer"}).value["sha256"]
    )
    made = cluster.ask(task, OperationName.COMMIT, {"message": "Answer"})
    assert made.error is None, made.error
    return task, str(made.value["commit"]), str(cluster.ask(task, OperationName.STATUS).value["branch"])


def find_question(answer: OperationAnswer) -> str:
    assert answer.error is not None, answer.value
    assert (answer.error.code, answer.error.data is None) == ("approval_required", False)
    return str((answer.error.data or {})["approval_id"])


def test_a_push_without_a_controller_that_publishes_ends_within_the_wait_that_is_set(temporal: str) -> None:
    """Control: without the setting it waits for longer."""
    name = f"publish-{uuid.uuid4().hex[:8]}"
    with connected(temporal, name, 2.0) as dispatcher, working(temporal, name) as worker:
        worker.may_end.set()
        task = dispatcher.place(URL, {}).task_id
        asked = TaskOperation(id="push", task_id=task, name=OperationName.PUSH, arguments={"commit": COMMIT})
        began = time.monotonic()
        dispatcher.submit(asked)
        with pytest.raises(SandboxError) as caught:
            dispatcher.result(asked)
        assert 2.0 <= time.monotonic() - began < 25.0 * slowness()
        assert (caught.value.code, caught.value.reason) == ("engine_unavailable", "no_publisher")
        assert "within 2 s; no data was sent" in caught.value.details
        assert "cluster.role = 'publish'" in caught.value.hint
        kept = TaskOperation(id="snapshot", task_id=task, name=OperationName.SNAPSHOT)
        dispatcher.submit(kept)
        answer = dispatcher.result(kept)
        assert answer is not None
        assert answer.error is None, "the task goes on"
        with connected(temporal, name, PUBLISHER_S) as patient:
            other = patient.place(URL, {}).task_id
            later = TaskOperation(id="push", task_id=other, name=OperationName.PUSH, arguments={"commit": COMMIT})
            patient.submit(later)
            assert patient.result(later, wait_s=PUBLISHER_S - 1) is None


def test_a_push_whose_controller_was_killed_is_made_by_the_next_one_with_the_same_approval(cluster: Cluster) -> None:
    publisher, home = cluster.start_worker("publisher", role="publish"), cluster.base / "publisher"
    task, commit, branch = commit_answer(cluster)
    question = find_question(cluster.ask(task, OperationName.PUSH, {"commit": commit}))
    with Workbench(home) as bench:
        bench.answer_approval(question, approved=True, by="a person")
    push = TaskOperation(id="killed", task_id=task, name=OperationName.PUSH, arguments={"commit": commit})
    owner = cluster.url.split("/")[-2]
    with cluster.server.hook(owner, "project", "pre-receive", "sleep 20; exit 1"):
        cluster.dispatcher.submit(push)
        until(lambda: is_used(home, question))
        cluster.kill(publisher)
        with pytest.raises(SandboxError) as caught:
            cluster.dispatcher.result(push)
    assert caught.value.reason == "no_publisher"
    assert "was lost; its data may have been sent" in caught.value.details
    assert branch not in cluster.server.branches(owner, "project")
    cluster.dispatcher.submit(push)
    with pytest.raises(SandboxError, match="could not be carried out"):  # as before: Temporal keeps the answer
        cluster.dispatcher.result(push)
    assert (perform_here(home, cluster, push)) == ("internal", "operation_interrupted")
    cluster.start_worker("publisher", role="publish")
    again = cluster.ask(task, OperationName.PUSH, {"commit": commit})
    assert again.error is None, again.error
    assert (again.value["commit"], branch in cluster.server.branches(owner, "project")) == (commit, True)
    assert find_question(cluster.ask(task, OperationName.PUSH, {"commit": commit})) != question, "it is used up now"


def is_used(home: Path, question: str) -> bool:
    with Workbench(home) as bench:
        return bench.approval(question).state is ApprovalState.USED


def perform_here(home: Path, cluster: Cluster, operation: TaskOperation) -> tuple[str, str | None]:
    """What the controller of a home answers."""
    with Workbench(home, actor=Actor.AGENT) as bench:
        answer = ClusterPublisher(bench, cluster.hub).perform(cluster.url, operation, lambda: False)
    assert answer.error is not None
    return answer.error.code, answer.error.reason
