"""An agent and a person use a cluster as they use one host: its tools, a worker, and a controller that publishes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client

from devtools.agent import AgentServer, approved, ok, talk
from devtools.command import Command
from devtools.forges.fixtures import GitHub, require_fit
from devtools.forges.github import GitHubRules
from devtools.forges.packages import installed
from devtools.forges.server import serving
from devtools.gitserver import GitServer, introduce
from devtools.requirement import unavailable
from tests.e2e.clusters import Cluster, cluster_of
from tests.e2e.test_pull_requests import ServerBranches

pytestmark = pytest.mark.xdist_group("temporal")


@dataclass(frozen=True)
class Homes:
    """A cluster, and the home of the controller that publishes, which alone knows the forge."""

    cluster: Cluster
    publisher: Path
    forge: GitHub

    @property
    def branches(self) -> dict[str, str]:
        rules: Any = self.forge.rules
        return dict(rules.branches.all())


@pytest.fixture(scope="module")
def homes(temporal: str, git_server: GitServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Homes]:
    if not installed():
        unavailable("no stand-in for GitHub and no description of it: scripts/setup tools")
    base = tmp_path_factory.mktemp("agents")
    with cluster_of(temporal, git_server, base) as cluster:
        owner = cluster.url.split("/")[-2]
        branches: Any = ServerBranches(git_server, owner, "project")
        rules = GitHubRules(branches, git_server.password, owner=owner, name="project")
        stand_in = GitHub(rules, git_server.password)
        with serving(stand_in):
            publisher = introduce(base / "publisher", git_server)
            known = f'api_urls = {{ "127.0.0.1" = "{stand_in.api_url}" }}'
            (publisher / "config.toml").write_text(f'[remotes]\ngithub_hosts = ["127.0.0.1"]\n{known}\n')
            cluster.start_worker("worker")
            cluster.start_worker("publisher", role="publish")
            yield Homes(cluster, publisher, stand_in)
        require_fit(stand_in)


@pytest.fixture
def agent(homes: Homes, tmp_path: Path) -> Path:
    """The home of an agent or a person, with the settings of the cluster in its environment."""
    return introduce(tmp_path / "agent", homes.cluster.server)


def test_an_agent_works_on_a_cluster_with_the_same_tools(homes: Homes, agent: Path) -> None:
    person, publisher = Command(agent), Command(homes.publisher)

    async def session(client: Client) -> None:
        repository = (await approved(client, person, "space_repo_clone", url=homes.cluster.url))["repository"]
        task = (await ok(client, "space_repo_create_task", repo_id=repository["id"], prompt="Answer right"))["task"]
        name = task["id"]
        assert not (agent / "repositories" / "tasks" / f"{name}.json").exists(), "it is on the worker"
        assert [one["id"] for one in (await ok(client, "space_repo_list_tasks"))["tasks"]] == [name]
        checks = (await ok(client, "space_repo_list_checks", task_id=name))["checks"]
        assert {one["id"] for one in checks} == {"build", "test"}
        red = await ok(client, "space_repo_run_check", task_id=name, check_id="test", wait_s=60)
        assert (red["state"], red["verdict"]) == ("finished", "failed")
        told = await ok(client, "space_repo_read_log", run_id=red["run_id"], stream="stderr")
        assert ("Error" in told["content"], told["finished"]) == (True, True)
        found = await ok(client, "space_repo_search", task_id=name, pattern="wrong")
        assert [hit["path"] for hit in found["hits"]] == ["answer"]
        sha256 = (await ok(client, "space_repo_read_file", task_id=name, path="answer"))["sha256"]
        kept = await ok(client, "space_repo_snapshot", task_id=name, label="before")
        edit = {"path": "answer", "old": "wrong", "new": "right", "expected_sha256": sha256}
        await ok(client, "space_repo_edit_file", task_id=name, **edit)
        assert [one["id"] for one in (await ok(client, "space_repo_list_snapshots", task_id=name))["snapshots"]] == [
            kept["id"]
        ]
        assert "+right" in (await ok(client, "space_repo_diff", task_id=name))["text"]
        commit = (await ok(client, "space_repo_commit", task_id=name, message="Answer right"))["commit"]
        verified = await ok(client, "space_repo_verify", task_id=name, wait_s=60)
        assert (verified["state"], verified["verified"]) == ("finished", True)
        impact = await ok(client, "space_repo_impact", task_id=name)
        assert (impact["task_id"], impact["unclassified"]) == (name, 1)
        pushed = await approved(client, publisher, "space_repo_push", task_id=name)
        assert homes.branches[pushed["branch"]] == commit
        ready = {"task_id": name, "title": "Answer right", "draft": False}
        opened = await approved(client, publisher, "space_repo_open_pr", **ready)
        assert (opened["head_commit"], opened["draft"]) == (commit, False)
        assert (await ok(client, "space_repo_pr_status", task_id=name))["url"] == opened["url"]
        closing = {"task_id": name, "delete_worktree": True, "discard": True}
        await approved(client, person, "space_repo_close_task", **closing)
        assert (await ok(client, "space_repo_list_tasks"))["tasks"] == []

    talk(AgentServer(agent, "stdio", ("--approvals", "policy"), homes.cluster.settings), session)


def test_an_agent_moves_cleans_forks_and_explores_a_task(homes: Homes, agent: Path) -> None:
    person = Command(agent)

    async def session(client: Client) -> None:
        repository = (await approved(client, person, "space_repo_clone", url=homes.cluster.url))["repository"]
        name = (await ok(client, "space_repo_create_task", repo_id=repository["id"], prompt="Try"))["task"]["id"]
        assert (await ok(client, "space_repo_sync", task_id=name))["state"] == "up_to_date"
        moved = await ok(client, "space_repo_checkout", task_id=name, ref="main")
        assert (await ok(client, "space_repo_clean", task_id=name))["head_commit"] == moved["head_commit"]
        made = (await ok(client, "space_repo_fork_task", task_id=name, prompt="Another"))["task"]["id"]
        sha256 = (await ok(client, "space_repo_read_file", task_id=made, path="answer"))["sha256"]
        edit = {"path": "answer", "old": "wrong", "new": "right", "expected_sha256": sha256}
        await ok(client, "space_repo_edit_file", task_id=made, **edit)
        tried = await ok(client, "space_repo_explore", task_id=name, task_ids=[made], wait_s=120)
        assert (tried["winner"], tried["restored"]) == (made, True)
        assert (await ok(client, "space_repo_read_file", task_id=name, path="answer"))["content"] == "right\n"
        refused = (await client.call_tool("space_repo_promote", {"task_id": name})).structured_content
        assert refused is not None
        assert refused["error"]["reason"] == "not_on_cluster", "no person is asked about what is refused"
        assert person.ok("approvals", "list")["approvals"] == []
        for one in (name, made):
            closing = {"task_id": one, "delete_worktree": True, "discard": True}
            await approved(client, person, "space_repo_close_task", **closing)

    talk(AgentServer(agent, "stdio", ("--approvals", "policy"), homes.cluster.settings), session)


def test_a_person_uses_the_commands_of_one_host(homes: Homes, agent: Path) -> None:
    sandbox = Command(agent, homes.cluster.settings)
    repository = sandbox.ok("repo", "clone", homes.cluster.url)["repository"]
    task = sandbox.ok("task", "create", repository["id"], "--prompt", "Answer")["task"]["id"]
    assert [row["id"] for row in sandbox.ok("task", "list")["tasks"]] == [task]
    assert sandbox("check", "run", task, "test", "--json").json["verdict"] == "failed"
    answer = agent / "content"
    answer.write_text("right\n")
    sha256 = sandbox.ok("file", "read", task, "answer")["sha256"]
    sandbox.ok("file", "write", task, "answer", str(answer), "--expect", sha256)
    assert sandbox.ok("status", task)["dirty"] is True
    commit = sandbox.ok("commit", task, "-m", "Answer")["commit"]
    assert sandbox.ok("verify", task)["verified"] is True
    asked = sandbox("push", task, "--json")
    assert (asked.code, asked.error["code"]) == (3, "approval_required")
    Command(homes.publisher).ok("approvals", "approve", asked.json["error"]["data"]["approval_id"])
    pushed = sandbox.ok("push", task)
    assert homes.branches[pushed["branch"]] == commit
    assert sandbox.ok("task", "impact", task)["unclassified"] == 1
    refused = sandbox("promote", task, "--json")
    assert (refused.code, refused.json["error"]["reason"]) == (2, "not_on_cluster")
    assert f"promote {repository['id']}`" in refused.json["error"]["hint"]
    assert sandbox.ok("promote", "--history", task)["repo_id"] == repository["id"], "releases are of this host"
    assert sandbox.ok("task", "close", task, "--delete", "--discard")["task"]["status"] == "closed"
