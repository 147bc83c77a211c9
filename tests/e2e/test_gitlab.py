"""`sandbox pr` against a GitLab: a real git server takes the push, a stand-in beside it answers as GitLab's API."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from devtools.command import Command
from devtools.forges.branches import Branches
from devtools.forges.fixtures import GitLab, require_fit
from devtools.forges.gitlab import GitLabRules
from devtools.forges.server import serving
from devtools.gitserver import GitServer

pytestmark = pytest.mark.xdist_group("gitserver")
OWNER = "acme"


@dataclass(frozen=True)
class Served(Branches):
    """The branches as the git server has them."""

    server: GitServer
    name: str

    def all(self) -> Mapping[str, str]:
        return self.server.branches(OWNER, self.name)


@pytest.fixture
def gitlab(git_server: GitServer, tmp_path: Path) -> Iterator[GitLab]:
    """A GitLab with one project."""
    (tmp_path / "content").mkdir()
    (tmp_path / "content" / "hello.txt").write_text("hello\n")
    name = f"demo-{uuid.uuid4().hex[:8]}"
    git_server.seed(OWNER, name, tmp_path / "content")
    token = git_server.password
    stand_in = GitLab(GitLabRules(Served(tmp_path, git_server, name), token, owner=OWNER, name=name), token)
    with serving(stand_in):
        yield stand_in
    require_fit(stand_in)


@pytest.fixture
def home(gitlab: GitLab, home: Path) -> Path:
    """A home that takes the git server for a GitLab, and leaves readiness to people."""
    (home / "config.toml").write_text(
        '[remotes]\ngitlab_hosts = ["127.0.0.1"]\n[gate]\nrequire = "none"\n'
        f'[remotes.api_urls]\n"127.0.0.1" = "{gitlab.api_url}"\n'
    )
    return home


def test_merge_request_from_draft_to_merged(
    git_server: GitServer, gitlab: GitLab, sandbox: Command, tmp_path: Path
) -> None:
    rules = gitlab.rules
    repository = sandbox.ok("repo", "clone", git_server.https_url(OWNER, rules.name))["repository"]
    task = sandbox.ok("task", "create", repository["id"], "--prompt", "Greet everybody")["task"]["id"]

    def change(name: str) -> str:
        (tmp_path / "new").write_text(f"{name}\n")
        sandbox.ok("file", "write", task, name, str(tmp_path / "new"), "--expect", "absent")
        return str(sandbox.ok("commit", task, "-m", f"Add {name}")["commit"])

    first = change("one")
    opened = sandbox.ok("pr", "open", task, "--title", "Greet")
    assert (opened["number"], opened["draft"], opened["created"], opened["head_commit"]) == (1, True, True, first)
    assert rules.branches.all()[opened["head"]] == first
    (request,) = rules.merge_requests
    assert request.title == "Draft: Greet"
    assert "Greet everybody" in str(request.description)

    rules.pipelines.append({"id": 9, "sha": first, "status": "failed", "ref": opened["head"]})
    rules.jobs[9] = [{"id": 1, "name": "test", "status": "failed"}, {"id": 2, "name": "lint"}]
    rules.traces[1] = b"section_start:1:x\r\x1b[0K\x1b[31mAssertionError\x1b[0m: 4 != 5\n"
    failed = sandbox("pr", "status", task)
    assert failed.code == 1, failed.stdout + failed.stderr
    assert "      | AssertionError: 4 != 5\n" in failed.stdout

    second = change("two")
    again = sandbox.ok("pr", "open", task, "--ready")
    assert (again["number"], again["draft"], again["created"]) == (1, False, False)
    assert request.title == "Greet"
    waiting = sandbox.ok("pr", "status", task)
    assert (waiting["head_commit"], waiting["current"], waiting["verdict"]) == (second, True, "none")

    rules.pipelines.append({"id": 10, "sha": second, "status": "success", "ref": opened["head"]})
    rules.jobs[10] = [{"id": 3, "name": "test"}, {"id": 4, "name": "flaky", "status": "failed", "allow_failure": True}]
    assert sandbox.ok("pr", "status", task, "--watch")["verdict"] == "pass"
    request.state = "merged"
    assert sandbox.ok("pr", "status", task)["state"] == "merged"
    assert sandbox.ok("task", "list")["tasks"][0]["status"] == "merged"
    assert len(rules.merge_requests) == 1


def test_token_that_gitlab_does_not_take_is_told_and_not_shown(
    git_server: GitServer, gitlab: GitLab, sandbox: Command
) -> None:
    gitlab.rules.scopes = ("read_repository",)
    repository = sandbox.ok("repo", "clone", git_server.https_url(OWNER, gitlab.rules.name))["repository"]
    task = sandbox.ok("task", "create", repository["id"])["task"]["id"]
    refused = sandbox("pr", "status", task, "--json")
    assert (refused.code, refused.error["code"]) == (5, "auth_failed")
    assert "`api`" in refused.error["hint"]
    assert git_server.password not in refused.stdout + refused.stderr
