"""Runs, logs, the journal and other states of a task on a cluster, by the commands of one host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.command import Command
from devtools.gitserver import GitServer, introduce
from tests.e2e.clusters import Cluster, cluster_of

pytestmark = pytest.mark.xdist_group("temporal")


@pytest.fixture(scope="module")
def cluster(temporal: str, git_server: GitServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_of(temporal, git_server, tmp_path_factory.mktemp("states")) as found:
        found.start_worker("worker")
        yield found


@pytest.fixture
def agent(cluster: Cluster, tmp_path: Path) -> Path:
    """The home of a person, with the settings of the cluster in its environment."""
    return introduce(tmp_path / "agent", cluster.server)


def test_runs_logs_and_the_journal_of_a_task_are_read_from_its_worker(cluster: Cluster, agent: Path) -> None:
    sandbox = Command(agent, cluster.settings)
    repository = sandbox.ok("repo", "clone", cluster.url)["repository"]
    task, other = (sandbox.ok("task", "create", repository["id"], "--prompt", "Read")["task"]["id"] for _ in range(2))
    long = "all:\n\ttrue\n\ntest:\n\tseq 100000; echo last\n"
    agent.joinpath("content").write_text(long)
    sha256 = sandbox.ok("file", "read", task, "Makefile")["sha256"]
    sandbox.ok("file", "write", task, "Makefile", str(agent / "content"), "--expect", sha256)
    run = sandbox.ok("check", "run", task, "test")
    assert run["run_id"] in [one["run_id"] for one in sandbox.ok("check", "runs", task)["runs"]]
    whole = sandbox.ok("check", "log", task)
    assert (whole["run_id"], whole["truncated"]) == (run["run_id"], True)
    assert whole["content"].endswith("last\n")
    assert "\n7\n" in whole["content"]
    assert "bytes are not shown" in whole["content"]
    assert len(whole["content"]) < 300 * 1024
    assert whole["total_bytes"] == run["stdout_bytes"] > 2 * 256 * 1024
    assert "\n50000\n" not in whole["content"], "control: this part was left out"
    part = sandbox.ok("check", "log", run["run_id"], "--lines", "50000:50001")
    assert len(part["content"].split()) == 2
    assert not part["truncated"]
    found = sandbox.ok("check", "log", task, run["run_id"], "--pattern", "^77777$")
    assert [match["text"] for match in found["matches"]] == ["77777"]
    operations = [entry["operation"] for entry in sandbox.ok("task", "log", task)["entries"]]
    assert operations == ["create", "write", "check"]
    assert [entry["operation"] for entry in sandbox.ok("task", "log", task, "--limit", "1")["entries"]] == ["check"]
    foreign = sandbox("check", "log", other, run["run_id"], "--json")
    assert foreign.error["code"] == "not_found", "a run of another task on the same worker"
    for one in (task, other):
        sandbox.ok("task", "close", one, "--delete", "--discard")
    assert not [*(agent / "repositories" / "placed" / "seen").iterdir()], "what was noted goes with the task"
