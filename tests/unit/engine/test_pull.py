"""What a person who waits for a pull is shown."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from sandbox.engine import images
from sandbox.engine.build_output import PullOutput
from sandbox.engine.docker_api import DockerApi
from sandbox.engine.endpoint import Endpoint
from sandbox.errors import ErrorCode
from tests.unit.conftest import refused

STREAM = Path(__file__).parents[2] / "data" / "pull-20.10.jsonl"
"""Docker 20.10.24: an image of three layers from a registry of this host that sends 2.5 MB a second."""
HALF = "downloading, 8.7 MiB of 17.2 MiB"
DEADLINE_S = 30.0


def read_stream() -> list[dict[str, Any]]:
    return [json.loads(line) for line in STREAM.read_text().splitlines()]


def test_a_pull_says_how_much_of_all_layers_has_arrived() -> None:
    output = PullOutput()
    said = [output.text]
    for item in read_stream():
        output.add_item(item)
        if output.text != said[-1]:
            said.append(output.text)
    assert said[:2] == ["waiting for the registry", "downloading, 0 B"]
    assert HALF in said
    assert said[-4:] == [f"extracting, {number} of 3 layers" for number in range(4)]
    totals = {text.partition(" of ")[2] for text in said if text.startswith("downloading, ")}
    assert totals == {"", "17.2 MiB"}, "a total is said when it is that of all layers"


@pytest.mark.parametrize(
    "item",
    [
        {"status": "Downloading", "id": "a", "progressDetail": {}},
        {"status": "Downloading", "id": "a", "progressDetail": None},
        {"status": "Downloading", "id": "a", "progressDetail": {"current": "x", "total": 1}},
        {"status": "Extracting", "id": "a", "progressDetail": {"current": 1, "units": "s"}},
        {"status": "\x1b[2J"},
        {},
    ],
)
def test_words_of_the_engine_are_not_shown(item: dict[str, Any]) -> None:
    output = PullOutput()
    output.add_item({"status": "Pulling fs layer", "id": "\x1b[31m"})
    output.add_item(item)
    assert output.text == "downloading, 0 B"


class Api(docker.APIClient):
    """An engine whose pull waits half-way until it may go on."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()

    def pull(self, *_: object, **__: object) -> Iterator[dict[str, Any]]:
        items = read_stream()
        yield from items[:40]
        self.goes_on.wait(DEADLINE_S)
        yield from items[40:]

    def inspect_image(self, *_: object) -> dict[str, Any]:
        return {"Id": "sha256:1"}


def test_a_pull_is_reported_while_it_lasts_and_each_state_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "_PULL_REPORT_S", 0.01)
    api = Api()
    said: list[str] = []

    def report(line: str) -> None:
        said.append(line)
        if line == HALF:
            threading.Timer(0.1, api.goes_on.set).start()  # in the meantime nothing changes

    engine = DockerApi(api, Endpoint("unix:///run/docker.sock", "test"), "20.10")
    assert images.pull(engine, "sample/image:latest", report, DEADLINE_S).digest == "sha256:1"
    assert HALF in said
    assert len(said) == len({*said})


def test_a_pull_that_stands_still_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "_PULL_REPORT_S", 0.01)
    api, said = Api(), list[str]()
    engine = DockerApi(api, Endpoint("unix:///run/docker.sock", "test"), "20.10")
    with refused(ErrorCode.TIMEOUT):
        images.pull(engine, "sample/image:latest", said.append, 0.2)
    api.goes_on.set()
    assert said, "and said how far it was"


@pytest.mark.parametrize(
    "item", ["no object", {"status": "Downloading", "id": "a", "progressDetail": {"current": 1e999}}]
)
def test_a_stream_that_is_none_of_a_pull_ends_it_at_once(item: object, monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api()
    monkeypatch.setattr(api, "pull", lambda *_, **__: iter([item]), raising=False)
    engine = DockerApi(api, Endpoint("unix:///run/docker.sock", "test"), "20.10")
    if isinstance(item, str):
        with refused(ErrorCode.NETWORK_ERROR):
            images.pull(engine, "sample/image:latest", lambda _: None, DEADLINE_S)
    else:
        assert images.pull(engine, "sample/image:latest", lambda _: None, DEADLINE_S).digest == "sha256:1"
