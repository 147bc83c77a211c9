"""Questions to the engine without the SDK: the same answers, and none where the SDK has to say what is wrong."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import requests

from sandbox.engine import direct_requests
from sandbox.engine.connection import DockerEngine


def test_the_answer_is_the_sdks(engine: DockerEngine, base_image: str) -> None:
    assert direct_requests.inspect_directly(engine, "images", base_image) == engine.api.inspect_image(base_image)
    tag = "space-sandbox/base:latest"
    assert direct_requests.inspect_directly(engine, "images", tag) == engine.api.inspect_image(tag)


@pytest.mark.parametrize("name", ["no-such-thing", "a b", "../../version", "x\r\nHost: y", "%2e%2e", "é"])
def test_what_is_not_there_has_no_answer(engine: DockerEngine, name: str) -> None:
    assert direct_requests.inspect_directly(engine, "containers", name) is None


def test_an_engine_elsewhere_is_not_asked(engine: DockerEngine) -> None:
    elsewhere = replace(engine, endpoint=replace(engine.endpoint, url="tcp://127.0.0.1:1"))
    assert direct_requests.inspect_directly(elsewhere, "images", "x") is None


@contextmanager
def answering(folder: Path, answer: bytes, *, close: bool = True) -> Iterator[str]:
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
            yield f"unix://{path}"
        finally:
            done.set()
            thread.join(60)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.0 200 OK\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n{",
        b"HTTP/1.0 200 OK\r\n\r\n[]",
        b"HTTP/1.0 500\r\n\r\n{}",
        b"x",
    ],
    ids=["nothing", "head", "torn", "list", "failed", "noise"],
)
def test_what_is_no_answer_is_left_to_the_sdk(engine: DockerEngine, tmp_path: Path, answer: bytes) -> None:
    with answering(tmp_path, answer) as url:
        assert (
            direct_requests.inspect_directly(replace(engine, endpoint=replace(engine.endpoint, url=url)), "images", "x")
            is None
        )


def test_an_engine_that_hangs_is_a_timeout(
    engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.api, "timeout", 0.3)
    with answering(tmp_path, b"HTTP/1.0 200 OK\r\n", close=False) as url, pytest.raises(requests.ReadTimeout):
        direct_requests.inspect_directly(replace(engine, endpoint=replace(engine.endpoint, url=url)), "images", "x")
