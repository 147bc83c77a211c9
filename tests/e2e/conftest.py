"""Real peers for the end-to-end tests. No engine: skip on a laptop, fail in CI."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path

import docker
import docker.errors
import pytest
import requests

from devtools.command import Command
from devtools.gitserver import GitServer, introduce
from devtools.requirement import unavailable
from devtools.suite_groups import find_group
from devtools.temporalserver import temporal_server


@pytest.fixture(scope="session")
def git_server(testrun_uid: str, worker_id: str) -> Iterator[GitServer]:
    """One git server for each test process; tests make their own repositories in it."""
    try:
        with contextlib.closing(docker.from_env(timeout=5)) as engine:
            engine.ping()
    except (docker.errors.DockerException, requests.RequestException) as error:
        unavailable(f"no container engine answers: {error}")
    with GitServer(f"{testrun_uid}-{worker_id}") as server:
        yield server


_temporal = contextlib.ExitStack()
_addresses: list[str] = []


@pytest.fixture(scope="module")
def temporal(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One Temporal server for the modules of its group; clusters on it have names of their own."""
    if not _addresses:
        _addresses.append(_temporal.enter_context(temporal_server(tmp_path_factory.mktemp("temporal") / "log")))
    return _addresses[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """End the Temporal server with the last module of its group: without clients too it uses a processor."""
    try:
        return (yield)
    finally:
        if _addresses and (nextitem is None or find_group(nextitem.path) != "temporal"):
            _addresses.clear()
            _temporal.close()


@pytest.fixture
def home(git_server: GitServer, tmp_path: Path) -> Path:
    """A fresh home that knows the server's credentials."""
    return introduce(tmp_path / "home", git_server)


@pytest.fixture
def sandbox(home: Path) -> Command:
    """The command on that home."""
    return Command(home)


@pytest.fixture
def ssh_client() -> None:
    """The test needs an ssh command on the host."""
    if shutil.which("ssh") is None:
        unavailable("no ssh command")
