"""A forked command is a process like one that was started."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools import command
from devtools.command import Command
from devtools.forked import ForkServer


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    made = ForkServer({"PATH": os.environ["PATH"], "HOME": "/nonexistent"})
    yield made
    made.close()


def run(server: ForkServer, *arguments: str, **environment: str) -> tuple[int, str, str]:
    return server.run(arguments, {**server.environment, **environment}, 60)


def test_it_answers_as_a_started_command_does(server: ForkServer, tmp_path: Path) -> None:
    for arguments in (
        ["--version"],
        ["repo", "list", "--json"],
        ["no-such-command"],
        ["file", "read", "x", "y", "--json"],
    ):
        process = Command(tmp_path).start(*arguments)
        stdout, stderr = process.communicate(timeout=60)
        assert run(server, "--home", str(tmp_path), *arguments) == (process.returncode, stdout, stderr)


def test_each_call_has_its_own_environment_and_directory(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(server, "--home", "here", "repo", "list")[0] == 0
    assert run(server, "repo", "list", SANDBOX_HOME=str(tmp_path / "there"))[0] == 0
    assert {path.name for path in tmp_path.iterdir()} == {"here", "there"}


def test_commands_run_beside_each_other(server: ForkServer, tmp_path: Path) -> None:
    """One may wait for what another does."""
    codes: list[int] = []
    threads = [
        threading.Thread(target=lambda home=tmp_path / str(n): codes.append(run(server, "--home", str(home), "gc")[0]))
        for n in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(codes)) == 1
    assert len(codes) == 3


def test_one_that_does_not_end_is_killed(server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TimeoutError):
        server.run(["--home", "home", "mcp", "--http", "127.0.0.1:0"], server.environment, 12)
    assert (tmp_path / "home").is_dir(), "void: it had not begun"
    deadline = time.monotonic() + 30
    while others_in(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert others_in(tmp_path) == []
    assert run(server, "--version")[0] == 0


def others_in(directory: Path) -> list[int]:
    """Processes whose working directory it is, but for this one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink() == directory and int(process.name) != os.getpid():
                found.append(int(process.name))
    return found


def test_the_first_command_of_a_kind_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[str, ...]] = []
    start = Command.start

    def note(self: Command, *arguments: str) -> subprocess.Popen[str]:
        started.append(arguments)
        return start(self, *arguments)

    monkeypatch.setattr(command, "_started", set())
    monkeypatch.setattr(command, "_servers", [])  # one that starts with the environment of this test
    monkeypatch.setattr(Command, "start", note)
    sandbox = Command(tmp_path)
    for _ in range(2):
        assert sandbox.ok("repo", "list") == {"repositories": []}
        assert sandbox("status", "task-1", "--json").error["code"] == "not_found"
    assert started == [("repo", "list", "--json"), ("status", "task-1", "--json")]
    assert Command(tmp_path, {"LANG": "C"}).ok("repo", "list") == {"repositories": []}
    assert len(started) == 3, "an environment of its own needs a process of its own"
    command._servers[0].close()
