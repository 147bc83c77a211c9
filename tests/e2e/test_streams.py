"""Who reads the output decides neither what a command does nor how it exits."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from devtools.command import SANDBOX

FINE = ("profiles", "list")
WRONG = ("profiles", "show", "nope")


def ended(home: Path, *arguments: str, closing: str = "", **streams: IO[bytes] | int) -> tuple[int, str]:
    """Exit code and what reached stderr; `closing`: redirections of a shell such as `2>&-`."""
    command = [*SANDBOX, "--home", str(home), *arguments]
    script = f'exec "$@" {closing}'
    given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, **streams}
    done = subprocess.run(["sh", "-c", script, "sh", *command], check=False, timeout=60, text=True, **given)  # type: ignore[call-overload]  # reason: keywords of several types
    return done.returncode, done.stderr or ""


@pytest.fixture
def nobody_reads() -> Iterator[IO[bytes]]:
    """The writing end of a pipe whose reader left."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb", buffering=0) as stream:
        with pytest.raises(BrokenPipeError):
            stream.write(b"control")
        yield stream


@pytest.mark.parametrize(
    ("arguments", "code", "json_flag"),
    [
        pytest.param(FINE, 0, [], id="fine-text"),
        pytest.param(WRONG, 2, ["--json"], id="wrong-json"),
        pytest.param(("--help",), 0, [], id="help-text"),
        pytest.param(FINE, 0, ["--json"], id="fine-json", marks=pytest.mark.thorough),
        pytest.param(WRONG, 2, [], id="wrong-text", marks=pytest.mark.thorough),
        pytest.param(("--help",), 0, ["--json"], id="help-json", marks=pytest.mark.thorough),
    ],
)
def test_a_reader_who_left_changes_no_exit_code(
    tmp_path: Path, nobody_reads: IO[bytes], arguments: tuple[str, ...], code: int, json_flag: list[str]
) -> None:
    home = tmp_path / "home"

    assert ended(home, *json_flag, *arguments, stdout=nobody_reads)[0] == code
    assert ended(home, *json_flag, *arguments, stdout=nobody_reads, stderr=nobody_reads)[0] == code


@pytest.mark.parametrize("closing", [pytest.param("<&-", marks=pytest.mark.thorough), ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_descriptors_change_no_exit_code(tmp_path: Path, closing: str) -> None:
    assert ended(tmp_path / "home", *FINE, closing=closing) == (0, "")
    assert ended(tmp_path / "home", *WRONG, closing=closing)[0] == 2


@pytest.mark.parametrize(
    "arguments", [FINE, pytest.param((*FINE, "--json"), marks=pytest.mark.thorough), (*WRONG, "--json"), ("--help",)]
)
def test_output_that_cannot_be_written_is_an_error(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        code, errors = ended(tmp_path / "home", *arguments, stdout=full)

    assert code == 5
    assert "[internal]" in errors
    assert "No space left" in errors
    assert "Traceback" not in errors


def test_progress_that_cannot_be_written_is_not(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        assert ended(tmp_path / "home", *WRONG, stderr=full)[0] == 2


@pytest.mark.parametrize("arguments", [(), ("repo",)], ids=["nothing", "group"])
def test_no_command_is_one_line_in_json(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    command = [*SANDBOX, "--home", str(tmp_path / "home"), "--json", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, timeout=60)

    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["brief"] == "Missing command."


@pytest.mark.parametrize("arguments", [FINE, WRONG], ids=["result", "error"])
def test_no_color_is_respected_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert b"\x1b[" in on_a_terminal(tmp_path / "home", *arguments)  # the control

    monkeypatch.setenv("NO_COLOR", "1")
    plain = on_a_terminal(tmp_path / "home", *arguments)

    assert plain
    assert b"\x1b" not in plain


def on_a_terminal(home: Path, *arguments: str) -> bytes:
    """What the command shows on a terminal; it is less than the terminal buffers."""
    ours, theirs = os.openpty()
    try:
        ended(home, *arguments, stdout=theirs, stderr=theirs)
        return os.read(ours, 4096)
    finally:
        os.close(ours)
        os.close(theirs)
