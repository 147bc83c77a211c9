"""What is said of images that an engine refuses to load."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests

from sandbox.engine import image_transfer
from sandbox.engine.docker_api import DockerApi
from sandbox.errors import ErrorCode
from tests.unit.conftest import refused

WHY = "Error processing tar file(exit status 1): archive/tar: invalid tar header"
SAID: dict[str, tuple[int, str]] = {
    "by Docker 20.10, while it reads": (200, f'{{"errorDetail":{{"message":"{WHY}"}},"error":"{WHY}"}}\r\n'),
    "by Podman 4.3.1": (500, f'{{"cause":"payload does not match","message":"{WHY}","response":500}}\n'),
    "by a proxy": (502, WHY),
}


def engine_that_answers(status: int, content: str) -> DockerApi:
    answer = requests.Response()
    answer.status_code, answer.raw = status, io.BytesIO(content.encode())
    api = SimpleNamespace(post=lambda *_, **__: answer, base_url="http://engine", api_version="1.41")
    return cast("DockerApi", cast("Any", SimpleNamespace(api=api)))


@pytest.mark.parametrize("case", SAID)
def test_a_refusal_has_the_engines_words_and_a_hint(case: str) -> None:
    with refused(ErrorCode.INTERNAL) as caught:
        image_transfer.load(engine_that_answers(*SAID[case]), [b""])
    assert (caught.value.brief, caught.value.details) == ("The engine refused to load the images", WHY)
    assert "sandbox doctor" in caught.value.hint


def test_control_an_engine_that_loads_them_names_them() -> None:
    said = '{"stream":"Loaded image ID: sha256:0123\\n"}\r\n'
    assert image_transfer.load(engine_that_answers(200, said), [b""]) == ("sha256:0123",)
