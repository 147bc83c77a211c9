"""The user's own credential helper is asked apart: real git, a real helper in a HOME of its own."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest

from sandbox.git import credential_helper
from sandbox.git.credential_helper import ask_helper


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def install(home: Path, body: str) -> None:
    script = home / "helper"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o700)
    (home / ".gitconfig").write_text(f"[credential]\n\thelper = {script}\n")


def test_the_helpers_answer_becomes_a_credential(home: Path) -> None:
    install(home, f'cat > {home}/asked; echo username=me; echo password=hunter2; echo "env=$(env)" > {home}/env')

    found = ask_helper("git.example.com:8443", {"HOME": str(home), "SECRET_OF_OURS": "x"})

    assert found is not None
    assert (found.username, found.secret.get_secret_value()) == ("me", "hunter2")
    assert "hunter2" not in repr(found)
    assert "host=git.example.com:8443" in (home / "asked").read_text()
    assert "SECRET_OF_OURS" not in (home / "env").read_text()


def test_without_a_helper_there_is_no_prompt_and_no_credential(home: Path) -> None:
    assert (
        ask_helper("git.example.com", {"HOME": str(home), "GIT_ASKPASS": "/bin/echo", "SSH_ASKPASS": "/bin/echo"})
        is None
    )


def test_a_helper_that_hangs_is_given_up(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its processes are gone."""
    install(home, "exec sleep 60.25")
    monkeypatch.setattr(credential_helper, "DEADLINE_S", 0.5)

    assert ask_helper("git.example.com", {"HOME": str(home)}) is None
    ends = time.monotonic() + 10
    while running("60.25"):  # a killed process goes in its own time
        assert time.monotonic() < ends


def running(word: str) -> list[str]:
    """Command lines of processes that hold this word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes().decode(errors="replace"))
    return [line for line in found if word in line]


def test_a_helper_that_knows_nothing_gives_none(home: Path) -> None:
    install(home, "exit 0")

    assert ask_helper("git.example.com", {"HOME": str(home)}) is None
