"""Calls of the engine without the SDK: the same answers, and the SDK's errors."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import docker.errors
import pytest
import requests

from sandbox.engine.connection import DockerEngine
from sandbox.engine.direct_requests import find_object
from sandbox.engine.docker_api import translate_errors
from sandbox.engine.socket_api import SocketApi
from sandbox.errors import ErrorCode, SandboxError


@pytest.fixture
def ours(engine: DockerEngine) -> SocketApi:
    api: Any = engine.api
    assert isinstance(api, SocketApi)
    return api


@pytest.fixture
def sdk(ours: SocketApi) -> docker.APIClient:
    return ours._sdk


def test_the_answers_are_the_sdks(ours: SocketApi, sdk: docker.APIClient, base_image: str) -> None:
    assert ours.find("images", base_image) == sdk.inspect_image(base_image)
    tag = "space-sandbox/base:latest"
    assert ours.find("images", tag) == ours.inspect_image(tag) == sdk.inspect_image(tag), "the first is ours"
    assert ours.version(api_version=False) == sdk.version(api_version=False)
    assert ours.info().keys() == sdk.info().keys()
    assert ours.api_version == sdk.api_version


def test_a_container_lives_as_the_sdks_does(ours: SocketApi, sdk: docker.APIClient, base_image: str) -> None:
    label = {"space.sandbox.test": "direct"}
    body = {"Image": base_image, "Cmd": ["sleep", "600"], "Labels": label, "NetworkDisabled": True}
    created = ours.create_container_from_config(body, name="sandbox-direct")
    try:
        filters = {"label": [f"{name}={value}" for name, value in label.items()]}
        assert ours.containers(filters=filters) == []
        assert ours.containers(all=True, filters=filters) == sdk.containers(all=True, filters=filters)
        ours.start(created["Id"])
        ours.start(created["Id"])  # 304: it runs already
        with pytest.raises(requests.ReadTimeout):
            ours.wait(created["Id"], timeout=0.2)
        assert ours.inspect_container("sandbox-direct") == sdk.inspect_container(created["Id"])
        ours.kill("sandbox-direct", signal="SIGKILL")
        assert ours.wait(created["Id"]) == sdk.wait(created["Id"])
        with pytest.raises(docker.errors.APIError) as conflict:
            ours.kill("sandbox-direct", signal="SIGKILL")
        assert conflict.value.status_code == 409
        assert "is not running" in str(conflict.value.explanation)
    finally:
        url = f"{ours.base_url}/v{ours.api_version}/containers/sandbox-direct"
        assert ours.delete(url, params={"v": "1", "force": "1"}, timeout=30).status_code == 204
    assert ours.delete(url, params={}, timeout=30).status_code == 404


@pytest.mark.parametrize("name", ["no-such-thing", "a b", "x\r\nHost: y", "%2e%2e", "é"])
def test_what_is_not_there_is_none(engine: DockerEngine, ours: SocketApi, sdk: docker.APIClient, name: str) -> None:
    assert find_object(engine, "containers", name) is None
    with pytest.raises(docker.errors.NotFound):
        ours.inspect_container(name)
    assert find_object(replace(engine, api=sdk), "containers", "no-such-thing") is None
    with pytest.raises(docker.errors.APIError, match="301"):  # the engine would send us elsewhere
        ours.inspect_container("../../version")


@contextmanager
def answering(folder: Path, answer: bytes, *, close: bool = True) -> Iterator[SocketApi]:
    """A socket that gives everybody the same answer."""
    path = folder / "engine.sock"
    done = threading.Event()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            channel, _ = listener.accept()
            with channel:
                channel.recv(65536)
                channel.sendall(answer)
                if not close:
                    done.wait(60)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield SocketApi(f"unix://{path}", 0.3)
        finally:
            done.set()
            thread.join(60)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"", ErrorCode.ENGINE_UNAVAILABLE),
        (b"HTTP/1.0 200 OK\r\n", ErrorCode.ENGINE_UNAVAILABLE),
        (b"HTTP/1.0 200 OK\r\n\r\n{", ErrorCode.ENGINE_UNAVAILABLE),
        (b"HTTP/1.0 200 OK\r\n\r\n[]", ErrorCode.ENGINE_UNAVAILABLE),
        (b"HTTP/1.0 301 Moved\r\n\r\n{}", ErrorCode.INTERNAL),
        (b"HTTP/1.0 500\r\n\r\n{}", ErrorCode.INTERNAL),
        (b"x", ErrorCode.ENGINE_UNAVAILABLE),
    ],
    ids=["nothing", "head", "torn", "list", "moved", "failed", "noise"],
)
def test_what_is_no_answer_is_an_error(engine: DockerEngine, tmp_path: Path, answer: bytes, code: ErrorCode) -> None:
    with answering(tmp_path, answer) as api, pytest.raises(SandboxError) as caught, translate_errors("look"):
        find_object(replace(engine, api=cast("docker.APIClient", api)), "images", "x")
    assert caught.value.code is code


def test_an_engine_that_hangs_is_a_timeout(engine: DockerEngine, tmp_path: Path) -> None:
    silent = answering(tmp_path, b"HTTP/1.0 200 OK\r\n", close=False)
    with silent as api, pytest.raises(SandboxError) as caught, translate_errors("look"):
        find_object(replace(engine, api=cast("docker.APIClient", api)), "images", "x")
    assert caught.value.code is ErrorCode.TIMEOUT
