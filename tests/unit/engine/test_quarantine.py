"""A container that the engine cannot end is tried once, noted, and left alone from then on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import docker
import pytest
import requests

from sandbox.engine.connection import DockerEngine
from sandbox.engine.container import list_containers, remove_container, remove_ended_container
from sandbox.engine.endpoint import Endpoint
from sandbox.engine.quarantine import choose_free_name, is_quarantined, remove_within, retry_removal
from sandbox.errors import ErrorCode, SandboxError
from sandbox.store.quarantine import QuarantineNotes

NAME, ID = "sandbox-run-1", "c0ffee"


class FakeApi(docker.APIClient):
    """Knows one container, and answers its removals with these: a status, or None for silence."""

    def __init__(self, *answers: int | None) -> None:
        self.base_url = "http+docker://localhost"
        self.timeout = 60
        self._version = "1.41"
        self.answers = list(answers)

    def containers(self, *_: Any, **__: Any) -> Any:
        return [{"Id": ID, "Names": [f"/{NAME}"], "Labels": {"a": "b"}, "State": "created"}]

    def delete(self, *_: Any, **options: Any) -> requests.Response:
        assert options["timeout"] > 0, "urllib3 raises ValueError"
        answer = requests.Response()
        found = self.answers.pop(0)
        if found is None:
            raise requests.exceptions.ReadTimeout("Read timed out.")
        answer.status_code = found
        return answer


@pytest.fixture
def ward(tmp_path: Path) -> QuarantineNotes:
    return QuarantineNotes(tmp_path / "quarantine")


def engine(ward: QuarantineNotes | None, *answers: int | None) -> DockerEngine:
    return DockerEngine(FakeApi(*answers), Endpoint("unix:///run/docker.sock", "DOCKER_HOST"), "20.10.24", ward)


def test_silence_is_waited_for_once_and_noted(ward: QuarantineNotes) -> None:
    found = engine(ward, None)
    remove_container(found, ID)  # by id, as whoever lists does
    assert ward.names() == {NAME: ID}
    remove_container(found, NAME)  # no answer is left: it is not asked
    remove_container(found, ID)
    assert list_containers(found, {}) == []


def test_without_a_ward_silence_is_an_error() -> None:
    with pytest.raises(SandboxError, match="could not be removed") as caught:
        remove_container(engine(None, None), NAME)
    assert caught.value.code is ErrorCode.INTERNAL


def test_a_removal_that_no_engine_answers_says_that_the_engine_is_not_there(
    ward: QuarantineNotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise requests.exceptions.ConnectionError("[Errno 111] Connection refused")

    monkeypatch.setattr(FakeApi, "delete", refuse)
    with pytest.raises(SandboxError, match="could not be removed") as caught:
        remove_container(engine(ward), NAME)
    assert caught.value.code is ErrorCode.ENGINE_UNAVAILABLE
    assert ward.names() == {}


@pytest.mark.slow
def test_a_refusal_is_tried_again_and_is_an_error(ward: QuarantineNotes) -> None:
    remove_container(engine(ward, 409, 204), NAME)
    with pytest.raises(SandboxError, match="could not be removed"):
        remove_container(engine(ward, 500, 500, 500), NAME)
    assert ward.names() == {}


@pytest.mark.slow
def test_a_refusal_after_the_end_is_noted_so_that_the_verdict_stays(ward: QuarantineNotes) -> None:
    found = engine(ward, 500, 500, 500)
    remove_ended_container(found, NAME)
    assert ward.names() == {NAME: ID}
    with pytest.raises(SandboxError, match="could not be removed"):
        remove_ended_container(engine(None, 500, 500, 500), NAME)


@pytest.mark.parametrize("status", [204, 404])
def test_one_that_is_gone_is_removed(ward: QuarantineNotes, status: int) -> None:
    remove_container(engine(ward, status), NAME)
    assert ward.names() == {}


def test_the_reaper_forgets_what_is_gone_and_keeps_what_is_not(ward: QuarantineNotes) -> None:
    ward.add(NAME, ID, "silence")
    with pytest.raises(SandboxError) as caught:
        retry_removal(engine(ward, None), NAME)
    assert caught.value.code is ErrorCode.CONFLICT
    assert is_quarantined(engine(ward), ID)
    retry_removal(engine(ward, 409, 404), NAME)  # the engine is at it, then done
    assert ward.names() == {}


def test_the_reaper_whose_time_has_run_out_asks_once_more(ward: QuarantineNotes) -> None:
    """As when the host is so busy that a short pause takes long."""
    api = FakeApi(404)
    remove_within(replace(engine(ward), api=api), NAME, -1.0)
    assert api.answers == []


def test_the_next_container_of_a_task_gets_a_name_that_nobody_holds(ward: QuarantineNotes) -> None:
    found = engine(ward)
    assert choose_free_name(found, "t") == "t"
    for name in ("t", "t-2"):
        ward.add(name, "", "")
    assert choose_free_name(found, "t") == "t-3"
    assert choose_free_name(replace(found, quarantine=None), "t") == "t"


def test_a_damaged_note_holds_its_name(ward: QuarantineNotes) -> None:
    ward.add(NAME, ID, "silence")
    (ward.folder / f"{NAME}.json").write_text("{")
    assert ward.names() == {NAME: ""}


def test_where_nothing_can_be_noted_silence_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SandboxError, match="could not be removed"):
        remove_container(engine(QuarantineNotes(tmp_path / "file" / "quarantine"), None), NAME)
