"""The git server that other tests rely on does what a forge does, seen by plain git."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import docker
import pytest
from docker.models.containers import Container

from devtools.gitserver import GitClient, GitServer
from devtools.gitserver.leftovers import LABEL
from tests.e2e.clusters import until

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.xdist_group("gitserver")


@pytest.fixture
def repository(git_server: GitServer, tmp_path: Path) -> str:
    """A name of its own for each test, holding one commit with one file."""
    name = f"demo-{uuid.uuid4().hex[:8]}"
    (tmp_path / "content").mkdir()
    (tmp_path / "content" / "hello.txt").write_text("hello\n")
    git_server.seed("acme", name, tmp_path / "content", message="First")
    return name


def change_and_push(client: GitClient, url: str, folder: Path) -> str:
    client.run("clone", "--quiet", url, str(folder))
    (folder / "hello.txt").write_text("changed\n")
    client.run("commit", "--quiet", "--all", "--message=Second", cwd=folder)
    client.run("push", "--quiet", "origin", "HEAD:refs/heads/topic", cwd=folder)
    return client.run("rev-parse", "HEAD", cwd=folder).strip()


def test_https_serves_clone_and_push_with_the_password(git_server: GitServer, repository: str, tmp_path: Path) -> None:
    client = git_server.client(with_key=False)

    pushed = change_and_push(client, git_server.https_url("acme", repository), tmp_path / "work")

    assert git_server.branches("acme", repository)["topic"] == pushed
    assert [entry.subject for entry in git_server.log("acme", repository, "topic")] == ["Second", "First"]
    assert git_server.show("acme", repository, "topic", "hello.txt") == b"changed\n"


@pytest.mark.usefixtures("ssh_client")
def test_ssh_serves_clone_and_push_with_the_key(git_server: GitServer, repository: str, tmp_path: Path) -> None:
    client = git_server.client(with_password=False)

    pushed = change_and_push(client, git_server.ssh_url("acme", repository), tmp_path / "work")

    assert git_server.branches("acme", repository)["topic"] == pushed


@pytest.mark.parametrize("credentials", ["none", "wrong-password"])
def test_https_refuses_without_the_password(git_server: GitServer, repository: str, credentials: str) -> None:
    client = git_server.client(with_password=credentials != "none", with_key=False, password="wrong")

    with pytest.raises(subprocess.CalledProcessError) as refusal:
        client.run("ls-remote", git_server.https_url("acme", repository))

    words = refusal.value.stderr
    assert "Authentication failed" in words or "could not read Username" in words


@pytest.mark.usefixtures("ssh_client")
def test_ssh_refuses_without_the_key(git_server: GitServer, repository: str) -> None:
    client = git_server.client(with_password=False, with_key=False)

    with pytest.raises(subprocess.CalledProcessError) as refusal:
        client.run("ls-remote", git_server.ssh_url("acme", repository))

    assert "Permission denied" in refusal.value.stderr


def test_https_certificate_is_not_trusted_without_its_ca(git_server: GitServer, repository: str) -> None:
    client = dataclasses.replace(git_server.client(), ca_file=Path("/dev/null"))

    with pytest.raises(subprocess.CalledProcessError) as refusal:
        client.run("ls-remote", git_server.https_url("acme", repository))

    assert "certificate" in refusal.value.stderr


@pytest.mark.usefixtures("ssh_client")
def test_ssh_account_runs_nothing_but_git(git_server: GitServer) -> None:
    client = git_server.client()
    ssh = client.environment()["GIT_SSH_COMMAND"].split()

    done = subprocess.run(
        [*ssh, "-p", str(git_server.ssh_port), "git@127.0.0.1", "id"],
        env=dict(client.environment()),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert done.returncode == 128
    assert done.stdout == ""


def test_equal_content_is_seeded_as_an_equal_commit(git_server: GitServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("same\n")

    first, second = (git_server.seed("acme", f"same-{uuid.uuid4().hex[:8]}", tmp_path) for _ in range(2))

    assert first == second


def containers_of(session: str) -> int:
    with contextlib.closing(docker.from_env()) as engine:
        return len(engine.api.containers(all=True, filters={"label": f"{LABEL}={session}"}))


def test_server_leaves_no_container_when_its_block_fails() -> None:
    session = uuid.uuid4().hex

    def fail_inside() -> None:
        with GitServer(session) as server:
            assert server.branches("ready", "probe") == {}
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail_inside()

    assert containers_of(session) == 0


def test_a_killed_server_process_is_replaced_and_none_waits_in_a_busy_loop() -> None:
    """fcgiwrap's own parent does so for the rest of its life: half of a processor, for as long as the suite runs."""
    session = uuid.uuid4().hex
    with GitServer(session):
        (container,) = docker.from_env().containers.list(filters={"label": f"{LABEL}={session}"})
        first = print_in(container, "pidof", "fcgiwrap").split()
        assert container.exec_run(["kill", "-9", first[0]])[0] == 0
        until(lambda: len({*print_in(container, "pidof", "fcgiwrap").split()} - {first[0]}) == len(first))
        used = sum_processor_s(container)
        time.sleep(1.0)
        assert sum_processor_s(container) - used < 0.5


def print_in(container: Container, *argv: str) -> str:
    output = container.exec_run(list(argv))[1]
    assert isinstance(output, bytes)
    return output.decode()


def sum_processor_s(container: Container) -> float:
    """Of all processes of a container but the one that asks."""
    listed = print_in(container, "sh", "-c", "cat /proc/[0-9]*/stat").splitlines()
    fields = [line.rpartition(")")[2].split() for line in listed if "(cat)" not in line and "(sh)" not in line]
    return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")


def test_server_of_a_killed_process_is_removed_by_the_next_start(tmp_path: Path) -> None:
    session = uuid.uuid4().hex
    script = f"import os; from devtools.gitserver import GitServer; GitServer({session!r}).__enter__(); os._exit(0)"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    argv = [sys.executable, "-c", script]
    subprocess.run(argv, cwd=ROOT, env=environment, timeout=120, check=True)
    assert containers_of(session) == 1

    with GitServer():
        assert containers_of(session) == 0
