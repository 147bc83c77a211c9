"""Forks of a task on a cluster: made where the task is, each then a task of its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.command import Command
from devtools.gitserver import GitServer, introduce
from sandbox.cluster.asked_operations import AskedOperations
from sandbox.cluster.cluster_workbench import ClusterWorkbench
from sandbox.cluster.dispatcher import PlacementTerms, name_fork
from sandbox.errors import SandboxError
from sandbox.models.operations import OperationAnswer, OperationName, TaskOperation
from sandbox.workbench import Workbench
from tests.e2e.clusters import Cluster, cluster_of, connected
from tests.e2e.test_line_of_tasks import URL, working
from tests.e2e.test_states_on_a_cluster import read, write

pytestmark = [pytest.mark.xdist_group("temporal"), pytest.mark.thorough]


@pytest.fixture(scope="module")
def cluster(temporal: str, git_server: GitServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_of(temporal, git_server, tmp_path_factory.mktemp("forks")) as found:
        found.start_worker("worker")
        yield found


@pytest.fixture
def agent(cluster: Cluster, tmp_path: Path) -> Path:
    """The home of a person, with the settings of the cluster in its environment."""
    return introduce(tmp_path / "agent", cluster.server)


def fork(cluster: Cluster, task: str, key: str) -> OperationAnswer:
    return cluster.ask(task, OperationName.FORK, key=key)


def test_a_fork_has_the_state_of_its_task_and_goes_on_elsewhere_when_the_worker_is_lost(
    cluster: Cluster, agent: Path
) -> None:
    sandbox = Command(agent, cluster.settings)
    repository = sandbox.ok("repo", "clone", cluster.url)["repository"]
    made = sandbox.ok("task", "create", repository["id"], "--prompt", "Fork", "--kind", "tree")["task"]
    task = made["id"]
    write(sandbox, agent, task, "answer", "first\n")
    kept = sandbox.ok("task", "snapshot", task)["id"]
    assert (made["workspace_kind"], has_files(cluster, task)) == ("tree", False)
    from_snapshot = ("task", "create", repository["id"], "--from-snapshot", kept)
    other = sandbox.ok(*from_snapshot, "--prompt", "Other", "--profile", "generic")["task"]
    assert (other["forked_from"], other["prompt"], other["profile"]) == (task, "Other", "generic")
    assert (other["workspace_kind"], has_files(cluster, other["id"])) == ("worktree", True), "as on one host"
    assert read(sandbox, other["id"], "answer") == "first\n"
    assert sandbox(*from_snapshot, "--base", "main", "--json").error["code"] == "invalid_input"
    assert sandbox(*from_snapshot[:-1], "snap-0", "--json").error["code"] == "not_found"
    sandbox.ok("task", "close", other["id"], "--delete", "--discard")
    write(sandbox, agent, task, "answer", "second\n")
    now = sandbox.ok("task", "fork", task, "--prompt", "Another way")["task"]
    before = sandbox.ok("task", "fork", task, "--snapshot", kept)["task"]
    assert (now["forked_from"], now["prompt"], before["prompt"]) == (task, "Another way", "Fork")
    assert (read(sandbox, now["id"], "answer"), read(sandbox, before["id"], "answer")) == ("second\n", "first\n")
    assert {row["id"] for row in sandbox.ok("task", "list")["tasks"]} == {task, now["id"], before["id"]}
    write(sandbox, agent, now["id"], "answer", "of the fork\n")
    sandbox.ok("commit", now["id"], "-m", "Fork")
    assert read(sandbox, task, "answer") == "second\n", "the task is as it was"
    assert sandbox("task", "fork", task, "--snapshot", "snap-0", "--json").error["code"] == "not_found"
    had = cluster.dispatcher.find_placement(now["id"])["worker"]
    assert cluster.dispatcher.find_placement(task)["worker"] == had
    cluster.start_worker("second")
    cluster.kill(had)
    assert read(sandbox, now["id"], "answer") == "of the fork\n"
    assert sandbox.ok("status", now["id"])["ahead"] == 1
    assert not has_files(cluster, now["id"]), "it keeps its kind"
    assert cluster.dispatcher.find_placement(now["id"])["worker"] != had
    later = sandbox.ok("task", "fork", task)["task"]["id"]
    placement = cluster.dispatcher.find_placement(later)
    assert (placement["epoch"], placement["worker"] != had) == (2, True), "the task moved first"
    write(sandbox, agent, later, "answer", "later\n")
    assert read(sandbox, task, "answer") == "second\n"
    for one in (task, now["id"], before["id"], later):
        sandbox.ok("task", "close", one, "--delete", "--discard")


def has_files(cluster: Cluster, task: str) -> bool:
    """Whether the files of a task are laid out on a worker."""
    return any(cluster.base.glob(f"*/repositories/worktrees/*/{task}/answer"))


def test_the_same_fork_is_made_once_and_not_begun_again_after_its_end(cluster: Cluster) -> None:
    task = cluster.begin()
    first = fork(cluster, task, "one")
    assert first.error is None, first.error
    assert fork(cluster, task, "one") == first
    made = str(first.value["id"])
    other = fork(cluster, task, "two")
    assert other.error is None, other.error
    assert other.value["id"] != made
    cluster.write(made, "x\n", "new")
    taken = cluster.ask(task, OperationName.FORK, {"fork_id": made})
    assert taken.error is not None
    assert (taken.error.code, taken.error.reason) == ("conflict", "task_exists")
    assert cluster.ask(made, OperationName.STATUS).value["dirty"] is True, "and it is as it was"
    closing = {"delete_worktree": True, "discard": True}
    assert cluster.ask(made, OperationName.CLOSE, closing).error is None
    assert fork(cluster, task, "one") == first
    with pytest.raises(SandboxError):
        cluster.ask(made, OperationName.STATUS)
    for one in (task, str(other.value["id"])):
        assert cluster.ask(one, OperationName.CLOSE, closing).error is None


def test_a_fork_whose_request_is_interrupted_is_closed_when_it_is_made(
    cluster: Cluster, agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller would not know it. Control: without an interrupt it goes on."""
    task, made, result = cluster.begin(), list[str](), cluster.dispatcher.result
    waits = iter([KeyboardInterrupt()])

    def wait(operation: TaskOperation, wait_s: float | None = None) -> OperationAnswer | None:
        if operation.name is OperationName.FORK:
            made.append(name_fork(operation))
            for interrupt in waits:
                raise interrupt
        return result(operation, wait_s)

    monkeypatch.setattr(cluster.dispatcher, "result", wait)
    with Workbench(agent, environ={}) as here:
        workbench = ClusterWorkbench(here, AskedOperations(lambda: cluster.dispatcher))
        with pytest.raises(KeyboardInterrupt):
            workbench.fork_task(task)
        assert workbench.tasks() == ()
        with pytest.raises(SandboxError) as unknown:
            cluster.ask(made[0], OperationName.STATUS)
        assert unknown.value.code == "not_found"
        assert not has_files(cluster, made[0])
        other = workbench.fork_task(task).id
        assert other not in {task, made[0]}
        assert has_files(cluster, other)
        for one in (task, other):
            workbench.close_task(one, delete_worktree=True, discard=True)


def test_an_answer_without_the_fork_that_was_asked_for_is_an_error_of_ours(temporal: str) -> None:
    name = f"forks-{uuid.uuid4().hex[:8]}"
    with connected(temporal, name) as dispatcher, working(temporal, name) as worker:
        worker.may_end.set()
        asked = TaskOperation(id="one", task_id=dispatcher.place(URL, {}).task_id, name=OperationName.FORK)
        dispatcher.submit(asked)
        with pytest.raises(SandboxError, match="cannot be read") as caught:
            dispatcher.result(asked)
        assert caught.value.code == "internal"
        with pytest.raises(SandboxError) as unknown:
            dispatcher.find_placement(name_fork(asked))
        assert unknown.value.code == "not_found"


def test_a_fork_requires_what_its_task_requires(cluster: Cluster) -> None:
    placed = cluster.dispatcher.place(
        cluster.url, {"prompt": "Require"}, terms=PlacementTerms(requirements={"cpus": "1"})
    )
    assert placed.error is None, placed.error
    asked = TaskOperation(id=uuid.uuid4().hex, task_id=placed.task_id, name=OperationName.FORK)
    cluster.dispatcher.submit(asked)
    answer = cluster.dispatcher.result(asked)
    assert answer is not None
    assert answer.error is None, answer.error
    made = str(answer.value["id"])
    placement = cluster.dispatcher.find_placement(made)
    assert (placement["requirements"], placement["worker"], placement["epoch"]) == ({"cpus": "1"}, answer.worker, 1)
    assert cluster.ask(made, OperationName.READ_FILE, {"path": "answer"}).value["content"] == "wrong\n"


RIGHT, WRONG = (f"--- a/answer\n+++ b/answer\n@@ -1 +1 @@\n-wrong\n+{word}\n" for word in ("right", "bad"))


def test_the_best_of_several_ways_is_taken_by_the_task(cluster: Cluster, agent: Path, tmp_path: Path) -> None:
    sandbox = Command(agent, cluster.settings)
    repository = sandbox.ok("repo", "clone", cluster.url)["repository"]
    task = sandbox.ok("task", "create", repository["id"], "--prompt", "Explore")["task"]["id"]
    made = sandbox.ok("task", "fork", task)["task"]["id"]
    write(sandbox, agent, made, "answer", "right, and more\n")
    write(sandbox, agent, made, "longer", "a larger difference is the worse one\n", is_new=True)
    patches = tmp_path / "patches"
    patches.mkdir()
    (patches / "good.patch").write_text(RIGHT)
    (patches / "bad.patch").write_text(WRONG)
    found = sandbox.ok("explore", task, "--patches", str(patches), "--tasks", made)
    assert (found["winner"], found["restored"], len(found["ways"])) == ("good.patch", True, 3)
    assert {way["name"] for way in found["ways"] if way["verified"]} == {"good.patch", made}
    assert read(sandbox, task, "answer") == "right\n"
    run = next(way for way in found["ways"] if way["name"] == "bad.patch")["runs"]["test"]
    assert sandbox.ok("check", "log", run)["run_id"] == run
    had = cluster.dispatcher.find_placement(task)["worker"]
    cluster.start_worker("third")
    cluster.kill(had)
    assert read(sandbox, task, "answer") == "right\n", "the state that was taken went along"
    moved = sandbox("explore", task, "--tasks", made, "--no-restore", "--json")
    assert moved.error["reason"] == "on_another_worker", "the fork has not moved yet"
    assert read(sandbox, made, "answer") == "right, and more\n"
    again = sandbox.ok("explore", task, "--tasks", made, "--no-restore")
    assert [way["verified"] for way in again["ways"]] == [True]
    for one in (task, made):
        sandbox.ok("task", "close", one, "--delete", "--discard")
