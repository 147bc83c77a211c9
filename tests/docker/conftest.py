"""The real engine. Absent it skips on a laptop and fails in CI."""

from __future__ import annotations

import os
from collections.abc import Iterator

import docker.errors
import pytest

from devtools.requirement import unavailable
from sandbox.engine.connection import Engine, connect
from sandbox.errors import SandboxError


def image_digest(engine: Engine, name: str) -> str:
    """The id of a local image of ours."""
    try:
        return str(engine.api.inspect_image(f"space-sandbox/{name}:latest")["Id"])
    except docker.errors.ImageNotFound:
        unavailable(f"No image space-sandbox/{name}:latest: run `sandbox images build {name}`")


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    try:
        found = connect("", os.environ, 60.0)
    except SandboxError as error:
        unavailable(f"{error.brief}: {error.details}")
    yield found
    found.close()


@pytest.fixture(scope="session")
def base_image(engine: Engine) -> str:
    return image_digest(engine, "base")


@pytest.fixture(scope="session")
def build_image(engine: Engine) -> str:
    return image_digest(engine, "build")
