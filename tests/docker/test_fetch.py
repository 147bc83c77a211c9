"""The way out of a guest that fetches packages: one socket, to the registries of this host's own settings."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from devtools.guests import remove_guests_of
from devtools.requirement import unavailable
from sandbox.config import RegistrySettings
from sandbox.egress.client_settings import PUBLIC
from sandbox.egress.registries import find_registries
from sandbox.engine.connection import DockerEngine
from sandbox.errors import ErrorCode, SandboxError
from sandbox.images import build
from sandbox.models import Check, Limits, Verdict
from sandbox.workbench.checks.callbacks import Watch
from sandbox.workbench.checks.fetch import FetchRequest, fetch
from sandbox.workbench.checks.guest_setup import GuestSetup
from sandbox.workbench.controller.services import Services, build_services
from tests.docker.conftest import image_digest

LIMITS = Limits(memory_bytes=512 * 1024**2, cpus=1.0, pids=64)
PIP = ("pip", "download", "--only-binary", ":all:", "--no-deps", "--dest", "/workspace")
WHEEL = "iniconfig"


@pytest.fixture
def registries() -> dict[str, Any]:
    """The index of this host's pip, named by the operator: its addresses may be internal ones."""
    found = find_registries("python", RegistrySettings(), os.environ)
    try:
        socket.getaddrinfo(found.hosts[0].destination.host, found.hosts[0].destination.port)
    except OSError as error:
        unavailable(f"No package registry: {error}")
    more = PUBLIC["python"][1:] if PUBLIC["python"][0] in found.indexes else ()
    return {"python": [*found.indexes, *more], "ca_file": found.ca_file}


@pytest.fixture
def services(engine: DockerEngine, tmp_path: Path, registries: dict[str, Any]) -> Iterator[Services]:
    made = build_services(tmp_path / "home", os.environ, {"registries": registries}, allow_file=True)
    build(made.image_build_context, "init", lambda line: None)
    yield made
    made.close()
    remove_guests_of(tmp_path / "home")
    assert list((made.home.repositories / "rooms").iterdir()) == []


def request_for(engine: DockerEngine, *argv: str, image: str = "python") -> FetchRequest:
    check = Check(id="fetch", label="Fetch", argv=argv, timeout_s=240.0, limits=LIMITS)
    return FetchRequest("python", "python", check, GuestSetup(image_digest(engine, image), "runc"))


def test_wheel_is_downloaded_through_the_socket(engine: DockerEngine, services: Services) -> None:
    request = replace(request_for(engine, *PIP, "-r", "wanted.txt"), inputs={"wanted.txt": f"{WHEEL}\n".encode()})
    with fetch(services, request, Watch()) as fetched:
        assert fetched.run.verdict is Verdict.PASSED, fetched.run.stderr_tail
        assert next(path.name for path in fetched.folder.glob("*.whl")).startswith(WHEEL)
        fetched.require_success("python")
    assert fetched.accesses
    assert fetched.refused == ()
    assert all(access.sent_bytes and access.received_bytes for access in fetched.accesses)


def test_host_that_is_not_a_registry_is_refused_and_named(engine: DockerEngine, services: Services) -> None:
    request = request_for(engine, *PIP, "--retries", "0", "--index-url", "https://registry.invalid/simple", WHEEL)
    with fetch(services, request, Watch()) as fetched, pytest.raises(SandboxError) as raised:
        fetched.require_success("python")
    assert raised.value.code is ErrorCode.EGRESS_REFUSED
    assert raised.value.brief == "egress_refused: registry.invalid:443, asked by the fetch of layer python"
    assert {(access.host, access.refused) for access in fetched.accesses} == {("registry.invalid", "not_allowed")}


def test_fetch_has_no_network_and_no_file_of_ours(engine: DockerEngine, services: Services) -> None:
    script = "cat /proc/net/dev | tail -n +3 | cut -d: -f1; ls -A /workspace; env | grep -i -c _proxy="
    with fetch(services, request_for(engine, "sh", "-c", script, image="base"), Watch()) as fetched:
        assert fetched.run.stdout_tail.split() == ["lo", "6"], fetched.run.stderr_tail
    assert fetched.accesses == ()


def test_runtime_that_shows_no_socket_is_refused_by_name(engine: DockerEngine, services: Services) -> None:
    request = request_for(engine, "true", image="base")
    request = replace(request, setup=replace(request.setup, runtime="runsc"))
    with pytest.raises(SandboxError, match="runsc") as raised, fetch(services, request, Watch()):
        pass
    assert raised.value.code is ErrorCode.ENGINE_UNAVAILABLE


def test_exit_status_and_signal_of_the_command_are_the_fetchs(engine: DockerEngine, services: Services) -> None:
    for script, code in (("exit 7", 7), ("kill -9 $$", 137)):
        with fetch(services, request_for(engine, "sh", "-c", script, image="base"), Watch()) as fetched:
            assert fetched.run.exit_code == code
