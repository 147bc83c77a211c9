"""`sandbox push` as a process of its own: what a server's hooks do to it, over https and over ssh."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from devtools.command import Command
from devtools.gitserver import GitServer

pytestmark = [pytest.mark.xdist_group("gitserver"), pytest.mark.usefixtures("ssh_client")]


@pytest.fixture
def repository(git_server: GitServer, tmp_path: Path) -> str:
    content = tmp_path / "content"
    content.mkdir()
    (content / "f.txt").write_text("one\n")
    name = f"push-{uuid.uuid4().hex[:8]}"
    git_server.seed("acme", name, content)
    return name


@pytest.fixture
def sandbox(git_server: GitServer, tmp_path: Path) -> Command:
    home = tmp_path / "home"
    home.mkdir()
    (home / "credentials.toml").touch(mode=0o600)
    (home / "credentials.toml").write_text(
        f'[[credential]]\nhost = "{git_server.https_host}"\nusername = "{git_server.username}"\n'
        f'secret = "{git_server.password}"\nca_file = "{git_server.ca_file}"\n'
        f'[[credential]]\nhost = "{git_server.ssh_host}"\nssh_key = "{git_server.ssh_key_file}"\n'
    )
    (home / "config.toml").write_text('[remotes]\ngithub_hosts = ["127.0.0.1"]\n')
    return Command(home, {"SSH_AUTH_SOCK": ""})


WORDS = r"printf '\033[31mneeds a ticket\033[0m\nPermission denied (publickey).\nremote: Authentication failed\n' >&2"


@pytest.mark.parametrize("protocol", [pytest.param("https", marks=pytest.mark.thorough), "ssh"])
def test_a_hook_that_declines_is_told_with_its_words_and_the_next_push_arrives(
    git_server: GitServer, repository: str, sandbox: Command, protocol: str
) -> None:
    url = {"https": git_server.https_url, "ssh": git_server.ssh_url}[protocol]("acme", repository)
    task = sandbox.ok("task", "create", sandbox.ok("repo", "clone", url)["repository"]["id"])["task"]
    (sandbox.home / "new").write_text("new\n")
    sandbox.ok("file", "write", task["id"], "new", str(sandbox.home / "new"), "--expect", "absent")
    head = sandbox.ok("commit", task["id"], "-m", "new")["commit"]

    with git_server.hook("acme", repository, "pre-receive", f"{WORDS}; exit 1"):
        declined = sandbox("push", task["id"], "--json")
        told = sandbox("push", task["id"])
    changed = f'while read -r old new ref; do git update-ref -d "$ref" "$new"; done; {WORDS}'
    with git_server.hook("acme", repository, "post-receive", changed):
        gone = sandbox("push", task["id"], "--json")
    pushed = sandbox("push", task["id"])

    assert (declined.code, declined.error["code"]) == (4, "push_rejected")
    assert declined.error["reason"] == "hook_declined"
    assert declined.error["details"].splitlines()[0] == "reason: hook_declined"
    assert "needs a ticket" in declined.error["details"]
    assert "needs a ticket" in told.stderr
    assert "\x1b" not in declined.error["details"] + told.stderr
    assert (gone.code, gone.error["code"]) == (4, "conflict")
    assert head in gone.error["details"]
    assert pushed.stdout.splitlines() == [f"pushed {head}", f"  branch {task['branch']}", "  forced no"]
    assert f"next: sandbox --home {sandbox.home} pr open {task['id']}" in pushed.stderr
    assert git_server.branches("acme", repository)[task["branch"]] == head
