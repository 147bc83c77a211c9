"""The real engine. Absent it skips on a laptop and fails in CI."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import docker
import docker.errors
import pytest

from devtools.requirement import unavailable
from sandbox.engine.connection import DockerEngine, connect
from sandbox.engine.protocol import ContainerEngine
from sandbox.errors import SandboxError


def docker_api(engine: ContainerEngine) -> docker.APIClient:
    """The API of the engine of these tests, which is Docker."""
    assert isinstance(engine, DockerEngine)
    return engine.api


def image_digest(engine: DockerEngine, name: str) -> str:
    """The id of a local image of ours."""
    try:
        return str(engine.api.inspect_image(f"space-sandbox/{name}:latest")["Id"])
    except docker.errors.ImageNotFound:
        unavailable(f"No image space-sandbox/{name}:latest: run `sandbox images build {name}`")


def remove_tags(engine: ContainerEngine, name: str) -> None:
    """All tags of an image of ours, and with them its images."""
    api = docker_api(engine)
    for image in api.images(f"space-sandbox/{name}"):
        for tag in image["RepoTags"]:
            with contextlib.suppress(docker.errors.ImageNotFound):
                api.remove_image(tag, force=True)


def make_remote(folder: Path, name: str, text: str) -> str:
    """A new repository with one commit of one file; its path, as a remote."""
    folder.mkdir()
    (folder / name).write_text(text)
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    for argv in (["init", "-q", "-b", "main"], ["add", "-A"], [*identity, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *argv], cwd=folder, check=True, timeout=60)
    return str(folder)


@pytest.fixture(scope="session")
def engine() -> Iterator[DockerEngine]:
    try:
        found = connect("", os.environ, 60.0)
    except SandboxError as error:
        unavailable(f"{error.brief}: {error.details}")
    found.api.ping()  # makes the SDK's client now: the guard of the unit suite forbids it in some tests
    yield found
    found.close()


@pytest.fixture(scope="session")
def base_image(engine: DockerEngine) -> str:
    return image_digest(engine, "base")


@pytest.fixture(scope="session")
def build_image(engine: DockerEngine) -> str:
    return image_digest(engine, "build")
