"""Workers that are killed: before they answer what the hub has already, and one after the other."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client

from devtools.agent import AgentServer, talk
from devtools.command import Command
from devtools.daemon import RunningDaemon, serving
from devtools.gitserver import GitServer, introduce
from sandbox.git.push.hub_refs import name_ref
from sandbox.models.operations import OperationName, TaskOperation
from sandbox.store.home import Home
from tests.e2e.clusters import Cluster, cluster_of, until

pytestmark = [pytest.mark.xdist_group("temporal"), pytest.mark.thorough]


@pytest.fixture
def cluster(temporal: str, git_server: GitServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Each test kills workers, so each has its own."""
    with cluster_of(temporal, git_server, tmp_path_factory.mktemp("lost-workers")) as found:
        found.start_worker("one")
        found.start_worker("two")
        yield found


def test_an_edit_whose_worker_was_killed_before_it_answered_is_answered_by_the_next_one(cluster: Cluster) -> None:
    """The hub takes the state, and keeps the worker waiting until it is killed. Control: the same edit under another id
    is refused.
    """
    task = cluster.begin()
    had = str(cluster.dispatcher.find_placement(task)["worker"])
    sha256 = cluster.ask(task, OperationName.READ_FILE, {"path": "answer"}).value["sha256"]
    content = base64.b64encode(b"right\n").decode()
    arguments = {"path": "answer", "content": content, "expected_sha256": sha256}
    edit = TaskOperation(id="edit", task_id=task, name=OperationName.WRITE_FILE, arguments=arguments)
    owner = cluster.hub.split("/")[-2]
    client = cluster.server.client()

    def find_state() -> str:
        return str(client.run("ls-remote", cluster.hub, name_ref(task, 1)))

    before = find_state()
    until_removed = 'while [ -e "$0" ]; do sleep 0.1; done'
    with cluster.server.hook(owner, "hub", "post-receive", until_removed):
        cluster.dispatcher.submit(edit)
        until(lambda: find_state() != before)
        cluster.kill(had)
    answer = cluster.dispatcher.result(edit)
    assert answer is not None
    assert answer.error is None, answer.error
    assert answer.worker == had
    assert answer.lost, "its caller learns of the loss"
    now = cluster.dispatcher.find_placement(task)
    assert (now["worker"] == had, now["epoch"]) == (False, 2)
    assert cluster.ask(task, OperationName.READ_FILE, {"path": "answer"}).value["content"] == "right\n"
    control = cluster.ask(task, OperationName.WRITE_FILE, arguments)
    assert control.error is not None
    assert control.error.code == "stale_hash"


def test_a_task_goes_back_to_the_worker_that_lost_it_when_there_is_no_other(cluster: Cluster) -> None:
    """As in an upgrade of two hosts, one after the other."""
    one, two = cluster.workers
    cluster.kill(two)
    task = cluster.begin()
    assert cluster.dispatcher.find_placement(task)["worker"] == one
    sha256 = cluster.ask(task, OperationName.READ_FILE, {"path": "answer"}).value["sha256"]
    cluster.write(task, "of one\n", sha256=sha256)
    assert cluster.start_worker("two") == two
    cluster.kill(one)
    sha256 = cluster.ask(task, OperationName.READ_FILE, {"path": "answer"}).value["sha256"]
    cluster.write(task, "of two\n", sha256=sha256)
    assert cluster.start_worker("one") == one
    cluster.kill(two)
    answer = cluster.ask(task, OperationName.READ_FILE, {"path": "answer"})
    assert (answer.value["content"], answer.worker, answer.epoch) == ("of two\n", one, 3)
    assert cluster.dispatcher.find_placement(task)["lost"] == [two]


def test_a_loss_is_said_once_by_the_command_line_and_to_agents_and_ids_may_be_short(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The next answer about the task says it. `-` is the task that was created last, as on one host."""
    agent = introduce(tmp_path / "agent", cluster.server)
    sandbox = Command(agent, cluster.settings)
    repository = sandbox.ok("repo", "clone", cluster.url)["repository"]
    task = str(sandbox.ok("task", "create", repository["id"], "--prompt", "Lose it")["task"]["id"])
    had = str(cluster.dispatcher.find_placement(task)["worker"])
    cluster.kill(had)
    seen = sandbox("status", "-")
    assert seen.code == 0, seen.stderr
    assert f"{task}: {had} was lost" in seen.stderr
    seen = sandbox("status", task[: len("task-") + 8])
    assert (seen.code, "was lost" in seen.stderr) == (0, False)
    (other,) = cluster.workers
    (name,) = (name for name in ("one", "two") if had.endswith(Home(cluster.base / name).instance_id))
    assert cluster.start_worker(name) == had
    cluster.kill(other)

    async def session(client: Client) -> None:
        told = await client.call_tool("space_repo_read_file", {"task_id": task, "path": "answer"})
        assert not told.is_error, told.structured_content
        assert f"{other} was lost" in str(told.content[-1])
        again = await client.call_tool("space_repo_read_file", {"task_id": task, "path": "answer"})
        assert "was lost" not in str(again.content)

    talk(AgentServer(agent, "stdio", ("--approvals", "policy"), cluster.settings), session)


def test_the_api_and_the_dashboard_show_a_loss_and_that_a_task_waits_in_line(cluster: Cluster, tmp_path: Path) -> None:
    agent = introduce(tmp_path / "agent", cluster.server)
    sandbox = Command(agent, cluster.settings)
    repository = sandbox.ok("repo", "clone", cluster.url)["repository"]
    task = str(sandbox.ok("task", "create", repository["id"], "--prompt", "Wait")["task"]["id"])
    had = str(cluster.dispatcher.find_placement(task)["worker"])
    (other,) = {*cluster.workers} - {had}
    read = {"task_id": task, "path": "answer"}
    transport = httpx2.HTTPTransport(uds=str(agent / "serve" / "api.sock"))
    with (
        serving(agent, environ={**os.environ, **cluster.settings}) as daemon,
        httpx2.Client(transport=transport, timeout=60, base_url="http://home") as client,
    ):
        daemon.wait_for_socket("api.sock")
        assert "lost" not in daemon.call("space_repo_read_file", **read), "control"
        assert "was lost" not in client.get(f"/tasks/{task}").text, "control"
        assert find_place(daemon, task) == {}, "control"
        assert "waiting" not in sandbox.ok("task", "list"), "control"
        cluster.kill(had)
        told = daemon.call("space_repo_read_file", **read)
        assert ([f"{task}: {had} was lost" in text for text in told["lost"]], told["content"]) == ([True], "wrong\n")
        assert "lost" not in daemon.call("space_repo_read_file", **read), "it is told once"
        for _ in range(2):  # a page shows it as long as there is the task
            page = client.get(f"/tasks/{task}").text
            assert f"{had} was lost" in page
            assert f"<code>{other}</code>" in page

        cluster.start_worker("three", slots=1)
        cluster.kill(other)
        blocking = cluster.begin()
        cluster.write(blocking, "", "wait")
        check = TaskOperation(
            id="block", task_id=blocking, name=OperationName.CHECK, arguments={"check_ids": ["build"]}
        )
        cluster.dispatcher.submit(check)
        until(lambda: cluster.has_begun(blocking))
        cluster.dispatcher.submit(TaskOperation(id="read", task_id=task, name=OperationName.STATUS))
        until(lambda: find_place(daemon, task).get("place") == 1)  # Temporal counts every few seconds
        place = find_place(daemon, task)
        assert (place["state"], place["workers"]) == ("waiting", 1)
        assert f"{had} was lost" in place["loss"]
        assert sandbox.ok("task", "list")["waiting"] == {task: place}
        assert "waits for a worker: about number 1 in the line" in sandbox("task", "list").stderr
        for path in ("/", f"/tasks/{task}"):
            shown = client.get(path)
            assert (shown.status_code, "at about place 1 in the line" in shown.text) == (200, True), path
        cluster.dispatcher.cancel(check)
        until(lambda: not find_place(daemon, task))
        assert f"{other} was lost" in client.get(f"/tasks/{task}").text


def find_place(daemon: RunningDaemon, task: str) -> dict[str, Any]:
    """What the list of tasks says of one that no worker has; empty if one has it."""
    return dict(daemon.call("space_repo_list_tasks").get("waiting", {}).get(task, {}))
