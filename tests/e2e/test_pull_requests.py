"""Pull requests as a person makes them: the command, a real git server for the push, and a stand-in for its forge."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client

from devtools.agent import AgentServer, approved, failed, ok, talk
from devtools.command import Command
from devtools.forges import faults
from devtools.forges.fixtures import GitHub, GitLab, elsewhere, forge_packages, require_fit
from devtools.forges.github import GitHubRules
from devtools.forges.github_bodies import Pull
from devtools.forges.gitlab import GitLabRules
from devtools.forges.gitlab_bodies import MergeRequest
from devtools.forges.server import StandIn, serving
from devtools.gitserver import GitServer
from devtools.home_files import list_home_files
from devtools.kills import Kills

__all__ = ["elsewhere", "forge_packages"]

pytestmark = [pytest.mark.xdist_group("pull-requests"), pytest.mark.usefixtures("forge_packages")]
ALL = os.environ.get("KILL_STEPS") == "all"

with_both = pytest.mark.parametrize("forge", ["github", "gitlab"], indirect=True)


@dataclass(frozen=True)
class ServerBranches:
    """The branches of a repository on the git server, for the forge in front of it."""

    server: GitServer
    owner: str
    name: str

    def all(self) -> dict[str, str]:
        return self.server.branches(self.owner, self.name)

    def knows(self, oid: str) -> bool:
        return oid in self.all().values()

    def ahead(self, base: str, head: str) -> int:
        return self.server.ahead(self.owner, self.name, base, head)


@dataclass
class Forge:
    """A forge in front of the git server's repository, and the command on a home that knows both."""

    kind: str
    stand_in: GitHub | GitLab
    sandbox: Command
    url: str
    server: GitServer
    name: str
    repo_id: str = ""

    @property
    def opened(self) -> int:
        """How many pull requests there are."""
        rules: Any = self.stand_in.rules
        return len(rules.pulls if self.kind == "github" else rules.merge_requests)

    @property
    def newest(self) -> Any:
        rules: Any = self.stand_in.rules
        return (rules.pulls if self.kind == "github" else rules.merge_requests)[-1]

    @property
    def opening(self) -> tuple[str, str]:
        """Method and path of the request that opens one."""
        project = f"acme/{self.name}" if self.kind == "github" else f"acme%2F{self.name}"
        return ("POST", f"/repos/{project}/pulls" if self.kind == "github" else f"/projects/{project}/merge_requests")

    @property
    def body(self) -> str:
        text = self.newest.body if self.kind == "github" else self.newest.description
        return str(text)

    def judge(self, commit: str, state: str) -> None:
        """One check of a commit: passed, failed or running."""
        rules: Any = self.stand_in.rules
        if self.kind == "github":
            said = {"passed": ("completed", "success"), "failed": ("completed", "failure")}
            status, conclusion = said.get(state, ("in_progress", None))
            url = "https://github.example/acme/x/runs/5"
            run = {"id": 5, "name": "unit", "status": status, "conclusion": conclusion, "html_url": url}
            rules.checks[commit] = [run]
            rules.annotations[5] = [{"message": "unit: one test failed"}]
            return
        said_there = {"passed": "success", "failed": "failed"}.get(state, "running")
        rules.pipelines.append(
            {"id": len(rules.pipelines) + 1, "sha": commit, "status": said_there, "ref": self.newest.source}
        )
        rules.jobs[len(rules.pipelines)] = [{"id": 5, "name": "unit", "status": said_there}]
        rules.traces[5] = b"unit: one test failed\n"

    def end(self, *, merged: bool) -> None:
        if self.kind == "github":
            self.newest.state, self.newest.merged = "closed", merged
        else:
            self.newest.state = "merged" if merged else "closed"

    def add_request(self, branch: str) -> str:
        """Another person opens a ready one in the browser. Returns the end of its address."""
        rules: Any = self.stand_in.rules
        if self.kind == "github":
            rules.pulls.append(Pull(self.opened + 1, branch, "main", "Theirs", "", draft=False))
            return f"/pull/{self.opened}"
        sha = self.server.branches("acme", self.name)[branch]
        rules.merge_requests.append(MergeRequest(self.opened + 1, branch, "main", "Theirs", "", sha=sha))
        return f"/merge_requests/{self.opened}"

    def task(self) -> str:
        """A task with one commit."""
        if not self.repo_id:
            repository = self.sandbox.ok("repo", "clone", self.url)["repository"]
            assert repository["host"] == self.kind
            self.repo_id = repository["id"]
        task = self.sandbox.ok("task", "create", self.repo_id, "--prompt", "Say two @octocat, closes #1")["task"]
        self.commit(task["id"], "Say two")
        return str(task["id"])

    def commit(self, task_id: str, message: str) -> str:
        source = self.sandbox.home / "content"
        source.write_text(uuid.uuid4().hex)
        self.sandbox.ok("file", "write", task_id, f"new-{uuid.uuid4().hex[:6]}", str(source), "--expect", "absent")
        return str(self.sandbox.ok("commit", task_id, "-m", message)["commit"])


@pytest.fixture(params=["github", pytest.param("gitlab", marks=pytest.mark.thorough)])
def forge(
    request: pytest.FixtureRequest, git_server: GitServer, home: Path, tmp_path: Path, elsewhere: StandIn
) -> Iterator[Forge]:
    """What differs between forges is shown by tests/contract/test_forges.py; `make test` has one whole way on each."""
    kind, name = request.param, f"pr-{uuid.uuid4().hex[:8]}"
    content = tmp_path / "content"
    content.mkdir()
    (content / "f.txt").write_text("one\n")
    git_server.seed("acme", name, content)
    branches: Any = ServerBranches(git_server, "acme", name)
    token = git_server.password
    stand_in: GitHub | GitLab
    if kind == "github":
        stand_in = GitHub(GitHubRules(branches, token, owner="acme", name=name), token)
    else:
        stand_in = GitLab(GitLabRules(branches, token, owner="acme", name=name), token)
    with serving(stand_in):
        lines = ["[remotes]", f'{kind}_hosts = ["127.0.0.1"]', f'api_urls = {{ "127.0.0.1" = "{stand_in.api_url}" }}']
        (home / "config.toml").write_text("\n".join(lines) + "\n")
        yield Forge(kind, stand_in, Command(home), git_server.https_url("acme", name), git_server, name)
    require_fit(stand_in)


@with_both
def test_from_a_commit_to_a_merged_pull_request_with_one_repair(forge: Forge) -> None:
    sandbox, task_id = forge.sandbox, forge.task()

    opened = sandbox.ok("pr", "open", task_id, "--title", "Say two")
    record = sandbox.ok("task", "show", task_id)["task"]
    assert (opened["draft"], opened["created"], opened["state"], opened["base"]) == (True, True, "open", "main")
    assert (record["status"], record["pr_url"]) == ("pr-open", opened["url"])
    assert forge.server.branches("acme", forge.name)[opened["head"]] == record["head_commit"] == opened["head_commit"]
    assert record["head_commit"][:12] in forge.body

    assert sandbox.ok("pr", "status", task_id)["verdict"] == "none"
    forge.judge(record["head_commit"], "failed")
    failed = sandbox("pr", "status", task_id, "--json")
    assert (failed.code, failed.json["verdict"], failed.json["current"]) == (1, "fail", True)
    assert "one test failed" in failed.json["checks"][0]["excerpt"]

    repaired = forge.commit(task_id, "Repair it")
    moved = sandbox("pr", "status", task_id, "--json")
    assert (moved.code, moved.json["current"]) == (4, False)
    again = sandbox.ok("pr", "open", task_id)
    assert (again["created"], again["number"], again["draft"], forge.opened) == (False, opened["number"], True, 1)
    assert repaired[:12] in forge.body
    forge.judge(repaired, "passed")
    watched = sandbox("pr", "status", task_id, "--watch", "--timeout", "60", "--json")
    assert (watched.code, watched.json["verdict"], watched.json["head_commit"]) == (0, "pass", repaired)

    forge.end(merged=True)
    assert sandbox.ok("pr", "status", task_id)["state"] == "merged"
    assert sandbox.ok("task", "show", task_id)["task"]["status"] == "merged"
    refused = sandbox("pr", "open", task_id, "--json")
    assert (refused.code, refused.error["code"], forge.opened) == (4, "conflict", 1)
    said = [entry["operation"] for entry in sandbox.ok("task", "log", task_id)["entries"]]
    assert said.count("pr-open") == 3


@pytest.mark.parametrize("forge", ["github", pytest.param("gitlab", marks=pytest.mark.thorough)], indirect=True)
def test_one_that_was_closed_upstream_closes_the_task_and_keeps_its_files(forge: Forge) -> None:
    sandbox, task_id = forge.sandbox, forge.task()
    sandbox.ok("pr", "open", task_id)
    forge.end(merged=False)
    closed = sandbox("pr", "status", task_id, "--json")
    assert (closed.code, closed.json["state"]) == (1, "closed")
    task = sandbox.ok("task", "show", task_id)["task"]
    assert (task["status"], Path(task["worktree_path"]).exists()) == ("closed", True)


def test_ready_needs_a_verified_tree_and_nothing_is_sent_before(forge: Forge) -> None:
    sandbox, task_id = forge.sandbox, forge.task()
    refused = sandbox("pr", "open", task_id, "--ready", "--json")
    assert (refused.code, refused.error["code"]) == (3, "gate_closed")
    assert list(forge.server.branches("acme", forge.name)) == ["main"]
    assert forge.stand_in.requests == []

    drafted = sandbox.ok("pr", "open", task_id)
    free = Command(sandbox.home, {"SANDBOX_GATE_REQUIRE": "none"})
    ready = free.ok("pr", "open", task_id, "--ready")
    assert (drafted["draft"], ready["draft"], ready["number"], forge.opened) == (True, False, drafted["number"], 1)
    assert free.ok("pr", "status", task_id)["draft"] is False


RED_REPORT = "<testsuite><testcase name='good'/><testcase name='old'><failure message='old'/></testcase></testsuite>"
RED_PROFILE = f"""
label = "Red"
image = "base"
priority = 99
[[detect.any]]
file = "f.txt"
[[check]]
id = "test"
label = "its tests"
argv = ["sh", "-c", 'echo "$0" >/report/junit.xml; exit 1', "{RED_REPORT}"]
limits = {{ memory_bytes = 134217728, cpus = 1.0, pids = 64 }}
"""


@pytest.mark.parametrize("forge", ["github"], indirect=True)  # nothing in it depends on the forge
def test_a_task_on_a_red_main_branch_gets_a_ready_one_with_the_table(forge: Forge) -> None:
    home = forge.sandbox.home
    (home / "profiles").mkdir()
    (home / "profiles" / "red.toml").write_text(RED_PROFILE)
    sandbox, task_id = forge.sandbox, forge.task()
    strict, loose = sandbox, Command(home, {"SANDBOX_GATE_ACCEPT": "no-new-failures"})
    refused = loose("pr", "open", task_id, "--ready", "--json")
    assert (refused.code, refused.error["code"]) == (3, "gate_closed")
    assert f"verify {task_id} --against base" in refused.error["hint"]

    compared = sandbox("verify", task_id, "--against", "base", "--json")
    assert (compared.code, compared.json["verified"], compared.json["no_new_failures"]) == (0, False, True)
    assert strict("pr", "open", task_id, "--ready", "--json").error["code"] == "gate_closed"
    assert list(forge.server.branches("acme", forge.name)) == ["main"]

    opened = loose.ok("pr", "open", task_id, "--ready")
    assert (opened["draft"], forge.opened) == (False, 1)
    assert "**Not verified**" in forge.body
    assert "ready: satisfied." in forge.body
    assert "**No new failures** against commit" in forge.body
    assert "| `test` | `failed` | `failed` |  |  |  | 1 |  |  |" in forge.body
    assert "- still failing: `old`" in forge.body

    forge.commit(task_id, "Another tree")
    again = loose("pr", "open", task_id, "--json")
    assert (again.code, again.error["code"]) == (3, "gate_closed")
    assert "was not compared with its base" in again.error["details"]
    assert forge.server.branches("acme", forge.name)[opened["head"]] == opened["head_commit"]


@pytest.mark.thorough  # as `tests/attack/test_s_gate.py`, at the command line
def test_s10_a_ready_one_of_another_person_gets_no_unverified_tree(forge: Forge) -> None:
    """Control: the task's record alone knows no pull request, and before the other person opens one, pushes arrive."""
    sandbox, task_id = forge.sandbox, forge.task()
    branch = sandbox.ok("push", task_id)["branch"]
    assert forge.stand_in.requests == []
    forge.commit(task_id, "More")
    sent = sandbox.ok("push", task_id)["commit"]
    address = forge.add_request(branch)
    assert sandbox.ok("task", "show", task_id)["task"]["pr_url"] is None

    forge.commit(task_id, "Even more")
    refused = sandbox("push", task_id, "--json")
    assert (refused.code, refused.error["code"]) == (3, "gate_closed")
    assert f"{address}, which is ready" in refused.error["hint"]
    assert forge.server.branches("acme", forge.name)[branch] == sent
    forge.stand_in.on("GET", forge.opening[1], faults.server_error(), forever=True)
    silent = sandbox("push", task_id, "--json")
    assert (silent.code, silent.error["code"], silent.error["reason"]) == (3, "gate_closed", "no_answer")
    free = Command(sandbox.home, {"SANDBOX_GATE_REQUIRE": "none"})
    assert forge.server.branches("acme", forge.name)[branch] == sent != free.ok("push", task_id)["commit"]


def test_what_people_wrote_in_the_body_stays(forge: Forge) -> None:
    sandbox, task_id = forge.sandbox, forge.task()
    sandbox.ok("pr", "open", task_id, "--body", "Please **look**.")
    field = "body" if forge.kind == "github" else "description"
    setattr(forge.newest, field, forge.body.replace("Please", "Kindly") + "\n\nLGTM")
    head = forge.commit(task_id, "More")
    sandbox.ok("pr", "open", task_id)
    assert forge.body.startswith("Kindly **look**.")
    assert forge.body.endswith("LGTM")
    assert head[:12] in forge.body


def test_a_token_in_the_body_is_refused_and_nothing_is_opened(forge: Forge) -> None:
    task_id = forge.task()
    refused = forge.sandbox("pr", "open", task_id, "--body", f"key: {forge.server.password}", "--json")
    assert (refused.code, refused.error["code"], forge.opened) == (3, "policy_violation", 0)
    assert set(forge.server.branches("acme", forge.name)) == {"main"}, "nothing was pushed either"
    assert forge.server.password not in refused.stdout + refused.stderr


def test_the_token_is_in_no_file_but_its_own_and_in_no_output(forge: Forge) -> None:
    sandbox, task_id, token = forge.sandbox, forge.task(), forge.server.password
    method, path = forge.opening
    forge.stand_in.on(method, path, faults.server_error(500))
    outputs = [
        sandbox("pr", "open", task_id, "--json"),
        sandbox("pr", "open", task_id),
        sandbox("pr", "status", task_id),
    ]
    assert [ended.code for ended in outputs] == [5, 0, 0]
    assert not any(token in ended.stdout + ended.stderr for ended in outputs)
    holding = [p.name for p in list_home_files(sandbox.home) if token.encode() in p.read_bytes()]
    assert holding == ["credentials.toml"]


@pytest.mark.parametrize("forge", ["github"], indirect=True)  # nothing in it depends on the forge
def test_an_agent_opens_one_once_a_person_has_read_what_it_says(forge: Forge) -> None:
    words = {"title": "Say two", "body": "See [here](https://evil.example/?q=1), @octocat.\n\nCloses #1"}
    person = forge.sandbox

    async def session(client: Client) -> None:
        repository = (await approved(client, person, "space_repo_clone", url=forge.url))["repository"]["id"]
        task = (await ok(client, "space_repo_create_task", repo_id=repository, prompt="Say two"))["task"]["id"]
        new = {"content": "two\n", "expected_sha256": None}
        await ok(client, "space_repo_write_file", task_id=task, path="two", **new)
        first = (await ok(client, "space_repo_commit", task_id=task, message="Say two"))["commit"]

        required = await failed(client, "space_repo_open_pr", "approval_required", task_id=task, **words)
        question = person.ok("approvals", "show", required["details"])["approval"]["question"]
        told = "\n".join(question)
        assert all(word in told for word in ("Say two", "evil.example", "Closes #1", "sends: 1 file", "verified: no"))
        person.ok("approvals", "approve", required["details"])
        await ok(client, "space_repo_write_file", task_id=task, path="three", **new)
        second = (await ok(client, "space_repo_commit", task_id=task, message="Say three"))["commit"]
        await failed(client, "space_repo_open_pr", "approval_required", task_id=task, **words)
        assert forge.opened == 0
        assert first != second

        await failed(client, "space_repo_open_pr", "gate_closed", task_id=task, draft=False, **words)
        opened = await approved(client, person, "space_repo_open_pr", task_id=task, **words)
        assert (opened["created"], opened["draft"], opened["head_commit"]) == (True, True, second)
        assert "](https://evil.example" not in forge.body
        forge.judge(second, "failed")
        status = await ok(client, "space_repo_pr_status", task_id=task)
        assert (status["verdict"], status["current"]) == ("fail", True)
        assert "one test failed" in status["checks"][0]["excerpt"]

    talk(AgentServer(person.home, "stdio"), session)


@pytest.mark.parametrize("forge", ["github"], indirect=True)  # as any host that is not configured
def test_a_host_that_is_no_forge_gets_the_branch_and_says_so(git_server: GitServer, forge: Forge) -> None:
    (forge.sandbox.home / "config.toml").unlink()
    repository = forge.sandbox.ok("repo", "clone", forge.url)["repository"]
    task_id = forge.sandbox.ok("task", "create", repository["id"])["task"]["id"]
    head = forge.commit(task_id, "More")
    words = "printf 'Create a pull request:\\n  https://127.0.0.1/acme/new\\n' >&2"
    with git_server.hook("acme", forge.name, "post-receive", words):
        refused = forge.sandbox("pr", "open", task_id, "--json")
    assert (refused.code, refused.error["code"]) == (2, "forge_unsupported")
    assert "https://127.0.0.1/acme/new" in refused.error["hint"]
    assert head in git_server.branches("acme", forge.name).values()
    assert forge.sandbox("pr", "status", task_id, "--json").error["code"] == "forge_unsupported"
    assert forge.sandbox.ok("task", "show", task_id)["task"]["status"] == "pushed"


@pytest.mark.parametrize("forge", ["github"], indirect=True)  # nothing in it depends on the forge
@pytest.mark.parametrize(
    "shares",
    [pytest.param((0.8, 0.97), id="late"), pytest.param((0.4, 0.9), id="earlier", marks=pytest.mark.thorough)],
)
def test_killed_at_any_step_the_next_call_finds_the_truth(
    forge: Forge, tmp_path: Path, shares: tuple[float, ...]
) -> None:
    """One pull request, on the record and of the last commit, whenever the command before was killed.

    `shares`: of the steps of the command, unless all are asked for. Most of what matters comes late.
    """
    notes = tmp_path / "notes"
    notes.mkdir()
    home = forge.sandbox.home
    with Kills(notes) as kills:
        whole = kills.run(home, "pr", "open", forge.task())
        assert whole.code == 0, whole.stdout
        steps = range(1, whole.steps + 1) if ALL else sorted({round(whole.steps * share) for share in shares})
        for step in steps:
            before, task_id = forge.opened, forge.task()
            killed = kills.run(home, "pr", "open", task_id, at=step)
            again = kills.run(home, "pr", "open", task_id)
            assert again.code == 0, f"after a kill at step {step}: {again.stdout}"
            assert forge.opened == before + 1, f"after a kill at step {step}"
            task = forge.sandbox.ok("task", "show", task_id)["task"]
            found = json.loads(again.stdout)
            assert (task["status"], task["pr_url"], task["head_commit"]) == (
                "pr-open",
                found["url"],
                found["head_commit"],
            )
            assert killed.was_killed or killed.code == 0


@pytest.mark.parametrize("moment", ["before it is opened", "after it is opened"])
def test_killed_while_the_forge_opens_it(forge: Forge, moment: str) -> None:
    task_id = forge.task()
    running: list[Any] = []
    killed: list[int] = []

    def kill(answer: Any) -> Any:
        running[0].kill()
        killed.append(running[0].wait())
        return faults.lost(answer)

    method, path = ("GET", forge.opening[1]) if moment.startswith("before") else forge.opening
    forge.stand_in.on(method, path, _waiting_for(running, kill))
    running.append(forge.sandbox.start("pr", "open", task_id, "--json"))
    running[0].communicate(timeout=120)
    assert killed == [-9], "void: it was not killed"
    assert forge.opened == (0 if moment.startswith("before") else 1)
    found = forge.sandbox.ok("pr", "open", task_id)
    assert (forge.opened, found["created"]) == (1, moment.startswith("before"))
    assert forge.sandbox.ok("task", "show", task_id)["task"]["pr_url"] == found["url"]


def _waiting_for(running: list[Any], step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The request may be here before `Popen` has returned to us."""

    def spoil(answer: Any) -> Any:
        while not running:
            os.sched_yield()
        return step(answer)

    return spoil
