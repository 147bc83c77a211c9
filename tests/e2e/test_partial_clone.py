"""Partial clones, limits and a talkative server, over https and ssh, with the credential that each needs."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.gitserver import GitServer
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import transport
from sandbox.models import TaskOptions
from sandbox.workbench import Workbench

pytestmark = pytest.mark.xdist_group("gitserver")

VERSION_BYTES = 1024**2
VERSIONS = 8
ON_ONE = ["https", pytest.param("ssh", marks=pytest.mark.thorough)]
"""What does not depend on how the server is reached."""


@pytest.fixture(scope="module")
def history(git_server: GitServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A repository whose one large file was written anew in each commit."""
    folder, name = tmp_path_factory.mktemp("history"), f"history-{uuid.uuid4().hex[:8]}"
    client, url = git_server.client(), git_server.create("acme", name)
    client.run("init", "--quiet", "--initial-branch=main", cwd=folder)
    for number in range(VERSIONS):
        (folder / "data.bin").write_bytes(os.urandom(VERSION_BYTES))
        (folder / "README.md").write_text(f"version {number}\n")
        client.run("add", "--all", cwd=folder)
        client.run("commit", "--quiet", f"--message=version {number}", cwd=folder)
    client.run("push", "--quiet", url, "main:main", "main~2:refs/heads/older", cwd=folder)
    return name


@pytest.fixture
def workbench(home: Path) -> Iterator[Workbench]:
    with Workbench(home, environ={"PATH": os.environ["PATH"]}) as opened:
        yield opened


def url(server: GitServer, protocol: str, name: str) -> str:
    return server.https_url("acme", name) if protocol == "https" else server.ssh_url("acme", name)


def disk(home: Path) -> int:
    return sum(p.stat().st_size for p in (home / "repositories" / "clones").rglob("*") if p.is_file())


@pytest.mark.usefixtures("ssh_client")
@pytest.mark.parametrize("protocol", ["https", "ssh"])
def test_a_partial_clone_brings_one_version_then_what_is_asked_for_then_all(
    protocol: str, git_server: GitServer, history: str, workbench: Workbench, home: Path
) -> None:
    remote = url(git_server, protocol, history)
    cloned = workbench.clone(remote, partial=True)
    assert cloned.context.readme is not None
    assert f"version {VERSIONS - 1}" in cloned.context.readme.content
    assert VERSION_BYTES < disk(home) < 2 * VERSION_BYTES
    assert workbench.clone(remote).repository == cloned.repository  # no more the second time
    assert disk(home) < 2 * VERSION_BYTES

    task = workbench.create_task(cloned.repository.id, base_branch="older")
    assert workbench.read_file(task.id, "README.md").content == f"version {VERSIONS - 3}\n"
    assert workbench.status(task.id).changes == ()
    assert 2 * VERSION_BYTES < disk(home) < 3 * VERSION_BYTES

    workbench.materialize(cloned.repository.id)
    assert disk(home) > VERSIONS * VERSION_BYTES  # control: that much there was to leave out
    assert workbench.status(task.id).changes == ()


@pytest.mark.usefixtures("ssh_client")
@pytest.mark.parametrize("protocol", ON_ONE)
def test_a_task_without_files_goes_from_a_lazy_clone_to_the_same_bytes_in_a_fresh_one(
    protocol: str, git_server: GitServer, history: str, workbench: Workbench, home: Path, tmp_path: Path
) -> None:
    """Authenticated lazy clone, write, diff, commit, push, fresh clone. `older` was not fetched with the clone."""
    remote = url(git_server, protocol, history)
    repo_id = workbench.clone(remote, partial=True).repository.id
    before = disk(home)
    task = workbench.create_task(repo_id, "lazy", "older", options=TaskOptions(workspace_kind="tree"))
    assert workbench.read_file(task.id, "README.md").content == f"version {VERSIONS - 3}\n"
    content = os.urandom(1000)
    workbench.write_file(task.id, "new/bytes.bin", content, None)
    assert [file.path for file in workbench.diff(task.id).files] == ["new/bytes.bin"]
    assert before < disk(home) < before + 1.5 * VERSION_BYTES  # of all versions, only that of its base was fetched
    commit = workbench.commit(task.id, "Add bytes").commit
    assert workbench.push(task.id).commit == commit
    fresh = tmp_path / "fresh"
    git_server.client().run(
        "clone", "--quiet", f"--branch={task.branch}", git_server.https_url("acme", history), str(fresh)
    )
    assert (fresh / "new/bytes.bin").read_bytes() == content
    assert (fresh / "data.bin").stat().st_size == VERSION_BYTES


@pytest.mark.usefixtures("ssh_client")
@pytest.mark.parametrize("protocol", ON_ONE)
def test_e08_a_pack_past_the_limit_is_refused_over_the_network_too(
    protocol: str, git_server: GitServer, history: str, home: Path
) -> None:
    remote = url(git_server, protocol, history)
    for limit, refused in ((4 * VERSION_BYTES, True), (2 * VERSIONS * VERSION_BYTES, False)):
        settings = {"remotes": {"max_fetch_bytes": limit}}
        with Workbench(home, environ={"PATH": os.environ["PATH"]}, settings=settings) as workbench:
            if refused:
                with pytest.raises(SandboxError) as caught:
                    workbench.clone(remote)
                assert caught.value.code is ErrorCode.QUOTA_EXCEEDED
                assert "tried" not in caught.value.details
                assert list((home / "repositories" / "clones").iterdir()) == []
            else:
                assert workbench.clone(remote)  # control


def test_f11_our_secret_among_a_servers_progress_is_not_shown(
    git_server: GitServer, history: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: without the redaction the listener hears it."""
    secret = git_server.password
    words = "\n".join([f"your password is {secret}, in part {secret[:9]}"] * 1400)  # more than one piece of the stream
    for shown in (False, True):
        if shown:
            monkeypatch.setattr(transport, "remove_secret", lambda text, _credential: text)
        heard: list[str] = []
        with (
            git_server.saying(words),
            Workbench(home, environ={"PATH": os.environ["PATH"]}, progress=heard.append) as workbench,
        ):
            repository = workbench.clone(git_server.https_url("acme", history)).repository
            assert any("your password is" in line for line in heard), heard
            workbench.remove_repository(repository.id)
        assert (secret in "".join(heard)) is shown
