"""Bad input is an error for people: typed, quick, on the right exit code, never a traceback, never a secret."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from devtools.command import Command
from devtools.home_files import list_home_files

NO_ENGINE = {"DOCKER_HOST": "unix:///nonexistent/engine.sock"}


@pytest.fixture
def sandbox(tmp_path: Path) -> Command:
    return Command(tmp_path / "home", NO_ENGINE)


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["repo", "show", "nope"], "not_found", 2),
        (["task", "create", "nope"], "not_found", 2),
        (["task", "show", "task-nope"], "not_found", 2),
        (["task", "show", "../../etc/passwd"], "not_found", 2),
        (["status", "nope"], "not_found", 2),
        (["check", "run", "task-nope", "test"], "not_found", 2),
        (["check", "list", "nope"], "not_found", 2),
        (["profiles", "show", "pyton"], "not_found", 2),
        (["run", "not a url"], "invalid_input", 2),
        (["run", "--", "-oProxyCommand=id"], "invalid_input", 2),
        (["run", "ext::sh -c id"], "invalid_input", 2),
        (["run", "git://example.com/a/b"], "invalid_input", 2),
        (["run", "http://example.com/a/b"], "invalid_input", 2),
        (["run", "./x"], "invalid_input", 2),
        (["run", "https://example.com/a/b", "--profile", "pyton"], "not_found", 2),
        (["run"], "invalid_input", 2),
        (["rum", "x"], "invalid_input", 2),
        (["repo", "clone", "https://example.com/a/b", "--bogus"], "invalid_input", 2),
        (["images", "list"], "engine_unavailable", 5),
        (["images", "build", "base"], "engine_unavailable", 5),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_it_is_a_typed_error(sandbox: Command, arguments: list[str], code: str, exit_code: int) -> None:
    ended = sandbox("--json", *arguments)

    assert (ended.error["code"], ended.code) == (code, exit_code)
    people = sandbox(*arguments)
    assert (people.code, people.stdout) == (exit_code, "")
    assert f"[{code}]" in people.stderr
    assert "Traceback" not in people.stderr


def test_a_near_match_is_named(sandbox: Command) -> None:
    assert "python" in sandbox("profiles", "show", "pyton", "--json").error["details"]


@pytest.mark.parametrize(
    "url",
    [
        "https://user:hunter2@example.com/a/b",
        "https://hunter2@example.com/a/b",
        "ssh://git:hunter2@example.com/a/b",
        "https://example.com/a/b?token=hunter2",
    ],
)
def test_a_secret_in_a_url_is_refused_and_not_echoed(sandbox: Command, url: str) -> None:
    ended = sandbox("run", url, "--json")

    assert (ended.error["code"], ended.code) == ("invalid_input", 2)
    assert "hunter2" not in ended.stdout + ended.stderr
    assert not [p for p in list_home_files(sandbox.home) if b"hunter2" in p.read_bytes()]


def test_no_engine_says_what_was_tried_and_how_to_start_one_in_under_two_seconds(sandbox: Command) -> None:
    ended = sandbox("images", "list", "--json")

    assert "/nonexistent/engine.sock" in ended.error["details"]
    assert "DOCKER_HOST" in ended.error["details"]
    assert "start" in ended.error["hint"].lower()
    assert min(measure_excess(sandbox) for _ in range(3)) < 2


def test_an_engine_that_accepts_and_never_answers_is_given_up_after_the_configured_time(tmp_path: Path) -> None:
    path = tmp_path / "mute.sock"
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(path))
        mute.listen()
        sandbox = Command(tmp_path / "home", {"DOCKER_HOST": f"unix://{path}", "SANDBOX_ENGINE_TIMEOUT_S": "3"})
        started = time.monotonic()
        ended = sandbox("images", "list", "--json")
        took = time.monotonic() - started

    assert ended.error["code"] == "engine_unavailable"
    assert "within 3 s" in ended.error["brief"]
    assert "The engine is stuck or very busy" in ended.error["hint"]
    assert 3 <= took < 5 + start_up(sandbox)


def measure_excess(sandbox: Command) -> float:
    """What `images list` takes beyond a start. Of several the least: other tests only add to it."""
    started = time.monotonic()
    sandbox("images", "list")
    return time.monotonic() - started - start_up(sandbox)


def start_up(sandbox: Command) -> float:
    """What a command that needs no engine takes here and now: the budget is for looking, not for a busy machine."""
    started = time.monotonic()
    sandbox.ok("profiles", "list")
    return time.monotonic() - started


def test_doctor_without_an_engine_fails_with_a_hint(sandbox: Command) -> None:
    ended = sandbox("doctor", "--json")

    assert ended.code == 5
    engine = next(p for p in ended.json["probes"] if p["name"] == "engine")
    assert engine["level"] == "fail"
    assert engine["hint"]


def test_a_damaged_configuration_names_the_key(sandbox: Command) -> None:
    sandbox.home.mkdir(mode=0o700)
    (sandbox.home / "config.toml").write_text("[container]\nruntimee = 'runc'\n")

    ended = sandbox("repo", "list", "--json")

    assert (ended.error["code"], ended.code) == ("invalid_input", 2)
    assert "container.runtimee" in ended.error["brief"]


def test_a_damaged_state_file_is_named_and_left_as_it_is(sandbox: Command) -> None:
    sandbox.ok("repo", "list")
    registry = sandbox.home / "repositories" / "registry.json"
    registry.write_text('{"schema_version": 1, "repositories": [')

    ended = sandbox("repo", "list", "--json")

    assert ended.error["code"] == "internal"
    assert "registry.json" in ended.error["brief"]
    assert registry.read_text().endswith("[")
