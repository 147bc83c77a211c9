"""Remotes over ssh against a real sshd: paths below a home directory, and keys that only an agent holds."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devtools.command import Command
from devtools.gitserver import GitServer
from devtools.gitserver.tunnel import Tunnel
from devtools.requirement import unavailable

pytestmark = [pytest.mark.xdist_group("gitserver"), pytest.mark.usefixtures("ssh_client")]
PATCH = "--- a/f.txt\n+++ b/f.txt\n@@ -1 +1,2 @@\n one\n+two\n"


@pytest.fixture
def sandbox(git_server: GitServer, tmp_path: Path) -> Command:
    """A home of its own that knows the key for every host, and no agent."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "credentials.toml").touch(mode=0o600)
    (home / "credentials.toml").write_text(f'[[credential]]\nhost = "*"\nssh_key = "{git_server.ssh_key_file}"\n')
    return Command(home, {"SSH_AUTH_SOCK": ""})


def cycle(sandbox: Command, url: str) -> tuple[str, str]:
    """Clone, change, commit, push; the branch and commit that were pushed."""
    repo_id = sandbox.ok("repo", "clone", url)["repository"]["id"]
    task = sandbox.ok("task", "create", repo_id)["task"]
    seen = sandbox.ok("file", "read", task["id"], "f.txt")["sha256"]
    (sandbox.home / "p").write_text(PATCH)
    sandbox.ok("file", "patch", task["id"], str(sandbox.home / "p"), "--expect", f"f.txt={seen}")
    sandbox.ok("commit", task["id"], "-m", "two")
    pushed = sandbox.ok("push", task["id"])
    return pushed["branch"], pushed["commit"]


# --- a plain server: paths are those of its file system


@pytest.fixture
def at_home(git_server: GitServer, tmp_path: Path) -> str:
    """Name of a repository below alice's home directory, with one commit."""
    name = f"work-{uuid.uuid4().hex[:8]}"
    git_server.create_at_home(f"{name}.git")
    client, work = git_server.client(with_password=False), tmp_path / "work"
    client.run("init", "--quiet", "--initial-branch=main", str(work))
    (work / "f.txt").write_text("one\n")
    client.run("add", "--all", cwd=work)
    client.run("commit", "--quiet", "--message=one", cwd=work)
    client.run("push", "--quiet", f"ssh://alice@{git_server.ssh_host}/~/{name}.git", "main", cwd=work)
    return name


def branches(git_server: GitServer, name: str) -> str:
    """What the server really holds, asked by plain git."""
    return git_server.client().run("ls-remote", f"ssh://alice@{git_server.ssh_host}/home/alice/{name}.git")


def test_an_scp_path_is_below_the_users_home(git_server: GitServer, at_home: str, sandbox: Command) -> None:
    """scp-like URLs have no port, so port 22 of a loopback address of our own leads to the server."""
    address = f"127.{os.getpid() >> 16 & 255}.{os.getpid() >> 8 & 255}.{os.getpid() & 255 or 1}"
    try:
        tunnel = Tunnel(git_server.ssh_port, address, 22)
    except OSError as error:
        unavailable(f"port 22 of {address} cannot be had: {error}")
    with tunnel:
        rooted = sandbox("repo", "clone", f"ssh://alice@{address}/{at_home}.git", "--json")
        branch, commit = cycle(sandbox, f"alice@{address}:{at_home}.git")

        assert rooted.error["code"] == "remote_not_found"  # control: below the root there is none
        assert f"{commit}\trefs/heads/{branch}" in branches(git_server, at_home)
        again = sandbox.ok("repo", "clone", f"alice@{address}:{at_home}")  # the server tries the suffix itself
        also = sandbox.ok("repo", "clone", f"ssh://alice@{address}/~/{at_home}.git")
        assert again["repository"]["id"] == also["repository"]["id"]
        assert [r["owner"] for r in sandbox.ok("repo", "list")["repositories"]] == ["~alice"]


@pytest.mark.parametrize(
    "home", ["~alice", *(pytest.param(h, marks=pytest.mark.thorough) for h in ("~", "home/alice"))]
)
def test_spellings_of_a_home_with_a_port(git_server: GitServer, at_home: str, sandbox: Command, home: str) -> None:
    branch, commit = cycle(sandbox, f"ssh://alice@{git_server.ssh_host}/{home}/{at_home}.git")

    assert f"{commit}\trefs/heads/{branch}" in branches(git_server, at_home)


# --- an agent


@contextmanager
def agent(folder: Path, key: Path) -> Iterator[Path]:
    """A real ssh-agent that holds the key; its socket. Ended by its own process."""
    address = folder / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(address)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert "SSH_AUTH_SOCK" in process.stdout.readline()  # it listens
        subprocess.run(["ssh-add", "-q", str(key)], env={**os.environ, "SSH_AUTH_SOCK": str(address)}, check=True)
        yield address
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_a_key_that_only_the_agent_holds_clones_and_pushes(
    git_server: GitServer, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = tmp_path / "content"
    content.mkdir()
    (content / "f.txt").write_text("one\n")
    name = f"agent-{uuid.uuid4().hex[:8]}"
    git_server.seed("acme", name, content)
    url = git_server.ssh_url("acme", name)
    with agent(tmp_path_factory.mktemp("a"), git_server.ssh_key_file) as address:
        sandbox = Command(tmp_path / "home", {"SSH_AUTH_SOCK": str(address)})
        branch, commit = cycle(sandbox, url)
        assert git_server.branches("acme", name)[branch] == commit
        assert not (tmp_path / "home" / "credentials.toml").exists()

    gone = sandbox("repo", "clone", url, "--json")  # the same words, without the agent

    assert (gone.code, gone.error["code"]) == (5, "auth_failed")
