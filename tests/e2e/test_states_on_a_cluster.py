"""Runs, logs, the journal and other states of a task on a cluster, by the commands of one host."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO

import httpx2
import pytest

from devtools.command import Command
from devtools.daemon import serving
from devtools.gitserver import GitServer, introduce
from devtools.temporalserver import temporal_server
from sandbox.cluster.task_queues import TaskStart
from sandbox.errors import ErrorCode
from sandbox.models.operations import OperationName, TaskOperation
from tests.e2e.clusters import Cluster, cluster_of, until
from tests.unit.conftest import refused

pytestmark = [pytest.mark.xdist_group("temporal"), pytest.mark.thorough]


KEPT = """
label = "kept"
image = "base"
[[check]]
id = "make"
label = "make"
argv = ["sh", "-c", "printf app >app; seq 200000 >large; head -c 9000000 /dev/zero >huge"]
timeout_s = 300
limits = { memory_bytes = 134217728, cpus = 1.0, pids = 64 }
[[check.artifact]]
path = "*app"
[[check.artifact]]
path = "*large"
[[check.artifact]]
path = "*huge"
"""


@pytest.fixture(scope="module")
def cluster(temporal: str, git_server: GitServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_of(temporal, git_server, tmp_path_factory.mktemp("states")) as found:
        add_profile(introduce(found.base / "worker", git_server))
        found.start_worker("worker")
        yield found


def add_profile(home: Path) -> None:
    """One whose check keeps what it made."""
    folder = home / "profiles"
    folder.mkdir(exist_ok=True)
    (folder / "kept.toml").write_text(KEPT)


@pytest.fixture
def agent(cluster: Cluster, tmp_path: Path) -> Path:
    """The home of a person, with the settings of the cluster in its environment."""
    return introduce(tmp_path / "agent", cluster.server)


def create_task(sandbox: Command, cluster: Cluster, prompt: str, *options: str) -> str:
    """A task on the worker; the repository is cloned here if it is not."""
    repository = sandbox.ok("repo", "clone", cluster.url)["repository"]
    return str(sandbox.ok("task", "create", repository["id"], "--prompt", prompt, *options)["task"]["id"])


def test_runs_logs_and_the_journal_of_a_task_are_read_from_its_worker(cluster: Cluster, agent: Path) -> None:
    sandbox = Command(agent, cluster.settings)
    task, other = (create_task(sandbox, cluster, "Read") for _ in range(2))
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


def test_the_result_of_a_task_is_applied_to_a_checkout_of_the_caller(
    cluster: Cluster, agent: Path, tmp_path: Path
) -> None:
    sandbox = Command(agent, cluster.settings)
    task = create_task(sandbox, cluster, "Apply")
    mine = tmp_path / "mine"
    clone = agent / "repositories" / "clones" / sandbox.ok("task", "show", task)["task"]["repo_id"]
    subprocess.run(["git", "clone", "--quiet", str(clone), str(mine)], check=True)
    (tmp_path / "content").write_bytes(bytes(range(256)) * 2000)
    sandbox.ok("file", "write", task, "new/file", str(tmp_path / "content"), "--expect", "absent")
    refused_one = sandbox("task", "apply", task, "--to", str(mine), "--json")
    assert refused_one.error["code"] == "nothing_to_commit"
    planned = sandbox.ok("task", "apply", task, "--to", str(mine), "--uncommitted", "--dry-run")
    assert not (mine / "new").exists()
    commit = sandbox.ok("commit", task, "-m", "Add a file")["commit"]
    done = sandbox.ok("task", "apply", task, "--to", str(mine))
    assert (done["commit"], done["files"], done["tree"]) == (commit, planned["files"], planned["tree"])
    assert (mine / "new" / "file").read_bytes() == (tmp_path / "content").read_bytes()
    (mine / "new" / "file").write_bytes(b"mine")
    assert sandbox("task", "apply", task, "--to", str(mine), "--json").error["code"] == "conflict"
    sandbox.ok("task", "close", task, "--delete", "--discard")


def test_artifacts_of_a_check_are_read_from_its_worker(cluster: Cluster, agent: Path, tmp_path: Path) -> None:
    """One that does not fit into one answer comes in several; a large one needs a store that both share."""
    add_profile(agent)
    sandbox = Command(agent, cluster.settings)
    task = create_task(sandbox, cluster, "Keep", "--profile", "kept")
    run = sandbox.ok("check", "run", task, "make")["run_id"]
    listed = {one["path"]: one["size"] for one in sandbox.ok("artifacts", "list", run)["artifacts"]}
    assert listed == {"app": 3, "large": sum(len(f"{number}\n") for number in range(1, 200001)), "huge": 9_000_000}
    for path, begins in (("app", b"app"), ("large", b"1\n2\n")):
        assert sandbox("artifacts", "get", run, path, "-o", str(tmp_path / path)).code == 0
        content = (tmp_path / path).read_bytes()
        assert (len(content), content.startswith(begins)) == (listed[path], True)
    huge = sandbox("artifacts", "get", run, "huge", "-o", str(tmp_path / "huge"), "--json")
    assert huge.error["code"] == "quota_exceeded"
    assert "cache.artifacts" in huge.error["hint"]
    assert not (tmp_path / "huge").exists()
    unknown = sandbox("artifacts", "get", run, "other", "-o", str(tmp_path / "other"), "--json")
    assert unknown.error["code"] == "not_found"
    sandbox.ok("task", "close", task, "--delete", "--discard")


def test_checks_of_a_task_are_stopped_and_described_on_its_worker(cluster: Cluster, agent: Path) -> None:
    sandbox = Command(agent, cluster.settings)
    task = create_task(sandbox, cluster, "Stop")
    write(sandbox, agent, task, "wait", "", is_new=True)
    started = sandbox.ok("check", "run", task, "build", "--detach")
    until(lambda: cluster.has_begun(task))
    assert [one["check_id"] for one in sandbox.ok("check", "stop", task)["stopped"]] == ["build"]
    ended = sandbox("check", "wait", started["run_id"], "--json")
    assert [run["verdict"] for run in ended.json["runs"]] == ["killed"]
    assert sandbox.ok("policy", "check", "--check", task, "test")["answers"]
    sandbox.ok("task", "close", task, "--delete", "--discard")


def test_both_sides_are_compared_and_rounds_repeated_on_the_worker(cluster: Cluster, agent: Path) -> None:
    sandbox = Command(agent, cluster.settings)
    task = create_task(sandbox, cluster, "Compare")
    write(sandbox, agent, task, "answer", "right\n")
    sandbox.ok("commit", task, "-m", "Answer")
    compared = sandbox("verify", task, "--against", "base", "--json")
    assert compared.json["verified"] is True
    assert compared.json["comparison"] is not None
    sandbox.ok("task", "close", task, "--delete", "--discard")


SLOW = "all:\n\ttrue\n\ntest:\n\t@echo early; seq 40000; until test -f go; do sleep 0.1; done; echo late\n"


def test_output_is_shown_while_a_check_runs(cluster: Cluster, agent: Path) -> None:
    """By the command that runs it, by another one that follows the task, and by one that reads the log."""
    sandbox = Command(agent, cluster.settings)
    task = create_task(sandbox, cluster, "Show")
    write(sandbox, agent, task, "Makefile", SLOW)
    with (
        sandbox.start("watch", task, "--json") as follower,
        sandbox.start("check", "run", task, "test", "--follow") as runner,
    ):
        try:
            shown = read_until(runner.stderr, "\n40000\n")
            assert "test: " in shown
            assert "bytes are not shown" in shown, "of much output the end"
            assert "late" not in shown
            assert '"started"' in read_until(follower.stdout, '"output"')
            cluster.let_go(task)
            assert "late" in read_until(runner.stderr, "late")
            assert runner.wait(60) == 0
            read_until(follower.stdout, '"operation": "check"')
            sandbox.ok("task", "close", task, "--delete", "--discard")
            assert '"closed"' in read_until(follower.stdout, '"closed"')
            assert follower.wait(60) == 0
        finally:
            follower.kill()
            runner.kill()


def read_until(stream: IO[str] | None, *ends: str) -> str:
    """What a process prints until one of these. The test's own time limit ends it."""
    assert stream is not None
    text = ""
    while not any(end in text for end in ends):
        piece = os.read(stream.fileno(), 65536).decode(errors="replace")
        assert piece, text[-2000:]
        text += piece
    return text


def test_a_run_in_the_background_says_what_runs_and_its_log_is_read(cluster: Cluster, agent: Path) -> None:
    sandbox = Command(agent, cluster.settings)
    task = create_task(sandbox, cluster, "Read")
    write(sandbox, agent, task, "Makefile", SLOW)
    started = sandbox.ok("check", "run", task, "test", "--detach")
    until(lambda: cluster.has_begun(task))
    waited = sandbox("check", "wait", started["run_id"], "--timeout", "1", "--json")
    assert waited.json["check_id"] == "test"
    for run in (started["run_id"], waited.json["check_run_id"]):
        log = sandbox.ok("check", "log", run, "--lines", "1:2")
        assert (log["content"], log["finished"]) == ("early\n1\n", False)
    cluster.let_go(task)
    ended = sandbox.ok("check", "wait", started["run_id"])
    assert [one["verdict"] for one in ended["runs"]] == ["passed", "passed"]
    sandbox.ok("task", "close", task, "--delete", "--discard")


def test_looks_end_before_the_history_of_a_task_is_too_long(
    cluster: Cluster, agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server would end a workflow with too many events, which a new one replaces only when no operation runs.
    Control: the first looks are answered, and edits are at any time.
    """
    monkeypatch.setattr("sandbox.cluster.temporal_dispatcher.TaskStart", partial(TaskStart, most_events=120))
    task = cluster.begin()
    for _ in range(100):
        answer = cluster.ask(task, OperationName.READ_FILE, {"path": "answer"})
        assert answer.value["content"] == "wrong\n"
        if cluster.count_events(task) > 120:
            break
    with refused(ErrorCode.QUOTA_EXCEEDED) as error:
        cluster.ask(task, OperationName.READ_FILE, {"path": "answer"})
    assert error.value.reason == "history_full"
    assert cluster.ask(task, OperationName.STOP_CHECKS).error is None, "it ends what makes the history long"
    assert cluster.ask(task, OperationName.SNAPSHOT, {"label": "now"}).error is None


@pytest.mark.parametrize("advised", [True, False], ids=["as the server says", "before the server says so"])
def test_answers_are_known_when_a_long_history_was_begun_anew(
    git_server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, advised: bool
) -> None:
    """Between two operations, as soon as it is long. Controls: the history is another one; either bound is the only one
    that is reached.
    """
    most = TaskStart("", "", "").renewed_events if advised else 100
    monkeypatch.setattr("sandbox.cluster.temporal_dispatcher.TaskStart", partial(TaskStart, renewed_events=most))
    short = ("limit.historyCount.suggestContinueAsNew=100",) if advised else ()
    with temporal_server(tmp_path / "log", *short) as address, cluster_of(address, git_server, tmp_path) as cluster:
        cluster.start_worker("worker")
        task = cluster.begin()
        snapshot = TaskOperation(id="first", task_id=task, name=OperationName.SNAPSHOT, arguments={"label": "first"})
        cluster.dispatcher.submit(snapshot)
        first = cluster.dispatcher.result(snapshot)
        before = cluster.find_history(task)
        for _ in range(60):
            assert cluster.ask(task, OperationName.READ_FILE, {"path": "answer"}).value["content"] == "wrong\n"
            if cluster.find_history(task) != before:
                break
        assert cluster.find_history(task) != before
        assert cluster.dispatcher.result(snapshot) == first
        assert first is not None
        assert first.error is None
        with refused(ErrorCode.NOT_FOUND):
            cluster.dispatcher.result(snapshot.model_copy(update={"id": "never-asked"}))
        assert cluster.ask(task, OperationName.CLOSE, {"delete_worktree": True, "discard": True}).error is None


def test_the_dashboard_shows_a_task_of_the_cluster(cluster: Cluster, agent: Path) -> None:
    sandbox = Command(agent, cluster.settings)
    task = create_task(sandbox, cluster, "Draw it")
    write(sandbox, agent, task, "answer", "right\n")
    run = sandbox.ok("check", "run", task, "test")["run_id"]
    transport = httpx2.HTTPTransport(uds=str(agent / "serve" / "api.sock"))
    with (
        serving(agent, environ={**os.environ, **cluster.settings}) as daemon,
        httpx2.Client(transport=transport) as client,
    ):
        daemon.wait_for_socket("api.sock")
        pages = {path: client.get(f"http://home{path}", timeout=60) for path in ("/", f"/tasks/{task}", f"/runs/{run}")}
    assert {path: page.status_code for path, page in pages.items()} == dict.fromkeys(pages, 200)
    assert "Draw it" in pages["/"].text
    assert task in pages["/"].text
    assert "passed" in pages["/"].text, "its last run"
    assert "right" in pages[f"/tasks/{task}"].text
    assert "grep -q right answer" in pages[f"/runs/{run}"].text
    sandbox.ok("task", "close", task, "--delete", "--discard")


def test_a_check_that_is_started_in_the_background_is_not_waited_for(cluster: Cluster, agent: Path) -> None:
    """Its run ends only when it is stopped."""
    sandbox = Command(agent, cluster.settings)
    task = create_task(sandbox, cluster, "Wait")
    write(sandbox, agent, task, "wait", "", is_new=True)
    started = sandbox.ok("check", "run", task, "build", "--detach")
    assert (started["state"], started["task_id"]) == ("running", task)
    stopped = sandbox.ok("check", "stop", started["run_id"])
    assert [run["verdict"] for run in stopped["runs"]] == ["killed"]
    sandbox.ok("task", "close", task, "--delete", "--discard")


def send(cluster: Cluster, folder: Path, path: str, content: str, branch: str = "main") -> str:
    """Commit a file on a branch of the remote; a new branch begins at `main`. Returns the commit."""
    client = cluster.server.client()
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.invalid")
    client.run("clone", "--quiet", cluster.url, str(folder))
    if client.run("ls-remote", cluster.url, f"refs/heads/{branch}"):
        client.run("checkout", "--quiet", branch, cwd=folder)
    (folder / path).write_text(content)
    client.run("add", "--all", cwd=folder)
    client.run(*identity, "commit", "--quiet", "-m", "newer", cwd=folder)
    client.run("push", "--quiet", "origin", f"HEAD:refs/heads/{branch}", cwd=folder)
    return client.run("rev-parse", "HEAD", cwd=folder).strip()


def write(sandbox: Command, folder: Path, task: str, path: str, content: str, *, is_new: bool = False) -> None:
    (folder / "content").write_text(content)
    known = "absent" if is_new else sandbox.ok("file", "read", task, path)["sha256"]
    sandbox.ok("file", "write", task, path, str(folder / "content"), "--expect", known)


def read(sandbox: Command, task: str, path: str) -> str:
    return str(sandbox.ok("file", "read", task, path)["content"])


def test_a_newer_base_is_merged_into_a_task_which_then_goes_on_elsewhere(
    cluster: Cluster, agent: Path, tmp_path: Path
) -> None:
    sandbox = Command(agent, cluster.settings)
    task = create_task(sandbox, cluster, "Sync")
    write(sandbox, agent, task, "mine", "mine\n", is_new=True)
    newer = send(cluster, tmp_path / "one", "newer", "newer\n")
    assert sandbox.ok("task", "sync", task, "--offline")["state"] == "up_to_date", "control: its worker did not fetch"
    synced = sandbox.ok("task", "sync", task)
    assert (synced["state"], synced["base_commit"], synced["head_commit"]) == ("synced", newer, newer)
    assert (read(sandbox, task, "newer"), read(sandbox, task, "mine")) == ("newer\n", "mine\n")
    write(sandbox, agent, task, "newer", "ours\n")
    commit = sandbox.ok("commit", task, "-m", "Mine")["commit"]
    other = send(cluster, tmp_path / "two", "newer", "theirs\n")
    stopped = sandbox("task", "sync", task, "--json")
    assert (stopped.code, stopped.json["state"], stopped.json["head_commit"]) == (4, "conflicts", commit)
    conflict = stopped.json["conflicts"][0]
    assert "<<<<<<< ours" in conflict["merged"]
    answer = f"{conflict['path']}@{conflict['ours']['blob']}..{conflict['theirs']['blob']}"
    stale = sandbox("task", "sync", task, "--ours", f"{conflict['path']}@-..{conflict['theirs']['blob']}", "--json")
    assert stale.error["code"] == "stale_hash"
    merged = sandbox.ok("task", "sync", task, "--ours", answer)
    assert (merged["state"], merged["base_commit"], merged["ahead"]) == ("synced", other, 2)
    assert read(sandbox, task, "newer") == "ours\n"
    listed = {row["id"]: row for row in sandbox.ok("task", "list")["tasks"]}
    assert listed[task]["head_commit"] == merged["head_commit"]
    had = cluster.dispatcher.find_placement(task)["worker"]
    add_profile(introduce(cluster.base / "second", cluster.server))  # for tests that follow, in whatever order
    cluster.start_worker("second")
    cluster.kill(had)
    assert read(sandbox, task, "newer") == "ours\n"
    assert sandbox.ok("status", task)["base_commit"] == other
    assert cluster.dispatcher.find_placement(task)["worker"] != had
    sandbox.ok("task", "close", task, "--delete", "--discard")


def test_a_task_moves_to_another_branch_with_its_changes_and_to_no_commit_of_its_worker_alone(
    cluster: Cluster, agent: Path, tmp_path: Path
) -> None:
    sandbox = Command(agent, cluster.settings)
    task, other = (create_task(sandbox, cluster, "Move") for _ in range(2))
    write(sandbox, agent, task, "mine", "mine\n", is_new=True)
    tip = send(cluster, tmp_path / "one", "theirs", "theirs\n", "other")
    moved = sandbox.ok("task", "checkout", task, "other")
    assert (moved["base_commit"], moved["base_branch"], moved["previous"] is None) == (tip, "other", False)
    assert (read(sandbox, task, "theirs"), read(sandbox, task, "mine")) == ("theirs\n", "mine\n")
    assert sandbox.ok("task", "show", task)["task"]["base_branch"] == "other"
    write(sandbox, agent, other, "else", "else\n", is_new=True)
    commit = sandbox.ok("commit", other, "-m", "Else")["commit"]
    refused = sandbox("task", "checkout", task, commit, "--json")
    assert (refused.code, refused.error["code"], refused.error["reason"]) == (2, "invalid_input", "not_on_cluster")
    assert sandbox.ok("status", task)["base_commit"] == tip
    own = sandbox("task", "checkout", other, "other", "--json")
    assert own.error["code"] == "conflict", "it has a commit of its own, as on one host"
    for one in (task, other):
        sandbox.ok("task", "close", one, "--delete", "--discard")


def test_a_clean_deletes_what_a_check_left_and_keeps_the_changes(cluster: Cluster, agent: Path) -> None:
    sandbox = Command(agent, cluster.settings)
    task = create_task(sandbox, cluster, "Clean")
    write(sandbox, agent, task, "mine", "mine\n", is_new=True)
    write(sandbox, agent, task, "Makefile", "all:\n\techo it > built.o\n\ntest:\n\ttrue\n")
    sandbox.ok("check", "run", task, "build")
    assert read(sandbox, task, "built.o") == "it\n"
    cleaned = sandbox.ok("task", "clean", task)
    assert {change["path"] for change in cleaned["changes"]} == {"mine", "Makefile"}
    assert sandbox("file", "read", task, "built.o", "--json").error["code"] == "not_found"
    kept = [one["id"] for one in sandbox.ok("task", "snapshots", task)["snapshots"]]
    assert cleaned["previous"]["id"] in kept
    assert sandbox.ok("task", "clean", task, "--discard")["changes"] == []
    sandbox.ok("task", "close", task, "--delete")


def test_bytes_that_are_no_utf8_are_edited_and_patched(cluster: Cluster, agent: Path) -> None:
    sandbox = Command(agent, cluster.settings)
    task = create_task(sandbox, cluster, "Latin-1")
    before, after, patch = (agent / name for name in ("before", "after", "patch"))
    before.write_bytes(b"caf\xe9\n")
    after.write_bytes(b"th\xe9\n")
    sandbox.ok("file", "write", task, "menu", str(before), "--expect", "absent")
    known = sandbox.ok("file", "read", task, "menu")
    assert (known["encoding"], base64.b64decode(known["content"])) == ("base64", b"caf\xe9\n")
    edit = ("file", "edit", task, "menu", "--old-file", str(before), "--new-file", str(after))
    edited = sandbox.ok(*edit, "--expect", known["sha256"])["files"][0]["sha256_after"]
    patch.write_bytes(b"--- a/menu\n+++ b/menu\n@@ -1 +1,2 @@\n th\xe9\n+caf\xe9\n")
    sandbox.ok("file", "patch", task, str(patch), "--expect", f"menu={edited}")
    assert base64.b64decode(read(sandbox, task, "menu")) == b"th\xe9\ncaf\xe9\n"
    wrong = {"path": "menu", "old": "caf\xe9", "new": "", "expected_sha256": known["sha256"], "encoding": "base64"}
    refusal = cluster.ask(task, OperationName.EDIT_FILE, wrong).error
    assert refusal is not None
    assert refusal.code == "invalid_input"
    sandbox.ok("task", "close", task, "--delete", "--discard")
