"""A forked command is a process like one that was started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools import command
from devtools.command import Command, FirstStarts
from devtools.forked import ForkServer

pytestmark = pytest.mark.xdist_group("forked")  # else each process imports the package for a server of its own


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
    assert run(server, "--version")[0] == 0, "the process has imported the package: what follows is no part of that"
    with pytest.raises(TimeoutError):
        server.run(["--home", "home", "mcp", "--http", "127.0.0.1:0"], server.environment, 5)
    assert (tmp_path / "home").is_dir(), "void: it had not begun"
    deadline = time.monotonic() + 30
    while others_in(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert others_in(tmp_path) == []
    assert run(server, "--version")[0] == 0


# --- where a process is to be started


def stand_in(server: ForkServer, directory: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*server.stand_in, "--home", "home", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=directory,
        env=server.environment,
    )


@pytest.fixture
def serving(server: ForkServer, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A server for agents over HTTP that is ready."""
    with stand_in(server, tmp_path, "mcp", "--http", "127.0.0.1:0") as process:
        assert process.stderr is not None
        assert "serving at" in process.stderr.readline()
        yield process
        process.kill()


@pytest.mark.thorough
def test_it_has_the_streams_directory_and_exit_code_of_the_process_that_stands_for_it(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with stand_in(server, tmp_path, "mcp") as process:
        answer, said = process.communicate('{"jsonrpc": "2.0", "id": 7, "method": "ping"}\n', timeout=60)
    assert (process.returncode, answer, said) == (0, '{"jsonrpc":"2.0","id":7,"result":{}}\n', "")
    assert (tmp_path / "home").is_dir()
    with stand_in(server, tmp_path, "file", "read", "x", "y", "--json") as process:
        found = process.communicate(timeout=60)
    assert (process.returncode, *found) == run(server, "--home", "home", "file", "read", "x", "y", "--json")


@pytest.mark.thorough
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGHUP, 130)])
def test_it_gets_the_signals_of_the_process_that_stands_for_it(
    serving: subprocess.Popen[str], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    serving.send_signal(number)
    assert serving.wait(60) == code
    assert others_in(tmp_path) == []


def test_it_is_killed_with_the_process_that_stands_for_it(serving: subprocess.Popen[str], tmp_path: Path) -> None:
    (fork,) = (pid for pid in others_in(tmp_path) if pid != serving.pid)
    serving.kill()
    serving.communicate(timeout=60)  # until the fork closes its ends of the streams
    deadline = time.monotonic() + 30
    while Path(f"/proc/{fork}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert others_in(tmp_path) == []


def test_the_process_that_stands_for_one_that_a_signal_ended_ends_so_too(
    serving: subprocess.Popen[str], tmp_path: Path
) -> None:
    (fork,) = (pid for pid in others_in(tmp_path) if pid != serving.pid)
    os.kill(fork, signal.SIGKILL)
    assert serving.wait(60) == -signal.SIGKILL


# --- which commands are forks


def others_in(directory: Path) -> list[int]:
    """Processes whose working directory it is, but for this one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink() == directory and int(process.name) != os.getpid():
                found.append(int(process.name))
    return found


@pytest.mark.thorough
def test_the_first_command_of_a_kind_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[str, ...]] = []
    start = Command.start

    def note(self: Command, *arguments: str) -> subprocess.Popen[str]:
        started.append(arguments)
        return start(self, *arguments)

    monkeypatch.setattr(command, "first_starts", FirstStarts())
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


READS = """
import importlib, os, pkgutil, sys, sandbox
names = set()

class Noted(type(os.environ)):
    def __getitem__(self, name):
        if sys._getframe(1).f_globals["__name__"] != "fsspec.config":  # it looks for names of its own among all
            names.add(name)
        return super().__getitem__(name)

    def copy(self):  # for a program
        return {name: super(Noted, self).__getitem__(name) for name in self}

    def items(self):
        return self.copy().items()

os.environ.__class__ = Noted
for module in pkgutil.walk_packages(sandbox.__path__, "sandbox."):
    importlib.import_module(module.name)
print(*sorted(names))
"""


def test_variables_that_may_differ_are_read_by_no_import() -> None:
    """Of the home fsspec alone asks, for its configuration."""
    done = subprocess.run([sys.executable, "-I", "-c", READS], check=True, capture_output=True, text=True, timeout=120)
    read = done.stdout.split()
    assert "PYDANTIC_DISABLE_PLUGINS" in read, "void"
    assert [name for name in read if name.startswith(command.READ_LATER)] == ["HOME"]


@pytest.mark.thorough
def test_a_home_or_an_engine_of_its_own_needs_no_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "first_starts", FirstStarts())
    monkeypatch.setattr(command, "_servers", [])
    monkeypatch.setattr(Command, "start", lambda *_: pytest.fail("started"))
    command.first_starts.claim(("doctor",))
    for name in ("PYDANTIC_DISABLE_PLUGINS", "DOCKER_HOST"):
        monkeypatch.delenv(name, raising=False)
    for environment in ({}, {"PYDANTIC_DISABLE_PLUGINS": "__all__"}, {"DOCKER_HOST": "unix:///nonexistent/socket"}):
        ended = Command(tmp_path, environment | {"HOME": str(tmp_path)})("doctor")
    assert "/nonexistent/socket" in ended.stdout
    command._servers[0].close()


@pytest.mark.thorough
def test_the_first_server_of_a_kind_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "first_starts", FirstStarts())
    monkeypatch.setattr(command, "_servers", [])
    environment = {"PATH": os.environ["PATH"]}
    kinds = [("mcp", "stdio"), ("mcp", "http"), ("mcp", "http"), ("mcp", "stdio")]
    found = [tuple(command.find_command_line(kind, environment)) for kind in kinds]
    stand_in = command._servers[0].stand_in
    assert found == [command.SANDBOX, command.SANDBOX, stand_in, stand_in]
    assert command.find_command_line(kinds[0], {**environment, "LANG": "C"}) == list(command.SANDBOX)
    command._servers[0].close()


def test_of_processes_that_share_a_folder_one_starts_the_first_of_a_kind(tmp_path: Path) -> None:
    one, other = FirstStarts(tmp_path), FirstStarts(tmp_path)
    listed = ("repo", "list")
    assert [one.claim(listed), other.claim(listed), other.claim(listed)] == [True, False, False]
    assert [other.claim(("mcp", "http")), one.claim(("mcp", "http")), one.claim(())] == [True, False, True]
