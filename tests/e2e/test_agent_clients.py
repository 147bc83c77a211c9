"""Clients of `sandbox mcp` that are slow or read nothing, beside others; and how the server ends. Ids: THREATS N14."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import termios
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from devtools.agent import AgentServer
from devtools.command import SANDBOX, Command
from devtools.gitserver import GitServer

pytestmark = pytest.mark.xdist_group("gitserver")

PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def call(number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": f"p{number}"}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


# --- over stdio


class Peer:
    """A client of a server of its own that does only what a test has it do."""

    def __init__(self, home: Path, *options: str) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SANDBOX_")}
        argv = ["env", "--default-signal=INT,HUP,TERM", *SANDBOX, "--home", str(home), "mcp"]
        argv += options
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )

    def send(self, *messages: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.writelines(json.dumps(message).encode() + b"\n" for message in messages)
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found


@contextmanager
def peer(home: Path, *options: str) -> Iterator[Peer]:
    found = Peer(home, *options)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.communicate(timeout=60)


ENDS = {signal.SIGTERM: 0, signal.SIGINT: 130, signal.SIGHUP: 130}


@pytest.mark.parametrize("number", ENDS)
def test_a_signal_ends_a_server_whose_client_stays(tmp_path: Path, number: signal.Signals) -> None:
    with peer(tmp_path / "home") as client:
        client.send(PING)
        assert client.receive()["id"] == 7
        client.process.send_signal(number)
        assert client.process.wait(60) == ENDS[number]


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)])
def test_a_signal_ends_a_server_over_http(tmp_path: Path, number: signal.Signals) -> None:
    home = tmp_path / "home"
    process = Command(home).start("mcp", "--http", "127.0.0.1:0")
    assert process.stderr is not None
    assert "serving at" in process.stderr.readline()
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == ENDS[number]


# --- while a remote says nothing


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A listener whose connections get as far as their first word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(120)
        yield listener


def cloning(silent: socket.socket) -> dict[str, Any]:
    return call(10, "space_repo_clone", url=f"https://127.0.0.1:{silent.getsockname()[1]}/a/b.git")


def test_a_signal_ends_a_server_whose_remote_says_nothing(tmp_path: Path, silent: socket.socket) -> None:
    """git itself waits for minutes, and no cancellation reaches the thread that waits for git."""
    with peer(tmp_path / "home", "--approvals", "auto") as client:
        client.send(HELLO, READY, cloning(silent))
        with closing(silent.accept()[0]):
            client.process.send_signal(signal.SIGTERM)
            assert client.process.wait(60) == 0


def test_a_signal_ends_a_server_over_http_whose_remote_says_nothing(tmp_path: Path, silent: socket.socket) -> None:
    server = AgentServer(tmp_path / "home", "http", ("--approvals", "auto"))
    server.start()
    with httpx2.Client(timeout=120) as http:
        caller = Caller(server, http)
        with caller.connect() as connection:
            connection.sendall(caller.raw(cloning(silent)))
            with closing(silent.accept()[0]):
                assert server.stop() == 0


# --- beside a check


@dataclass(frozen=True)
class Work:
    """A task with a file of 45,000 bytes, and a check `test` that talks until it is let go."""

    person: Command
    task: str
    worktree: Path

    def let_go(self) -> None:
        (self.worktree / "go").touch()

    def wait_until_it_begins(self) -> None:
        while not (self.worktree / "begun").exists():
            time.sleep(0.05)

    def wait_until_it_passed(self) -> None:
        """Nothing but the journal tells: the client does not read."""
        while "test passed" not in self.ended():
            time.sleep(0.2)

    def ended(self) -> list[str]:
        """Checks and their verdicts."""
        return [name for entry in self.person.ok("task", "log", self.task)["entries"] for name in entry["names"]]

    def reads(self, count: int) -> list[dict[str, Any]]:
        """Calls whose results have 90 kB each."""
        return [call(100 + n, "space_repo_read_file", task_id=self.task, path="long") for n in range(count)]


@pytest.fixture
def work(git_server: GitServer, tmp_path: Path) -> Work:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Makefile").write_text(
        "build:\n\ttrue\ntest:\n\ttouch begun; while ! test -e go; do echo at work; sleep 0.05; done\n"
        ".PHONY: build test\n"
    )
    (folder / "long").write_text(("x" * 44 + "\n") * 1000)
    name = f"slow-{uuid.uuid4().hex[:8]}"
    git_server.seed("acme", name, folder)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    credentials = home / "credentials.toml"
    credentials.touch(mode=0o600)
    credentials.write_text(
        f'[[credential]]\nhost = "{git_server.https_host}"\nusername = "{git_server.username}"\n'
        f'secret = "{git_server.password}"\nca_file = "{git_server.ca_file}"\n'
    )
    person = Command(home)
    repository = person.ok("repo", "clone", git_server.https_url("acme", name))["repository"]["id"]
    task = person.ok("task", "create", repository)["task"]
    return Work(person, task["id"], Path(task["worktree_path"]))


def unread(descriptor: int) -> int:
    """Bytes that wait to be read."""
    return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4), sys.byteorder)


def test_n14_a_client_that_reads_nothing_holds_up_neither_its_check_nor_the_end(work: Work) -> None:
    with peer(work.person.home) as client:
        client.send(HELLO, READY)
        client.receive()
        client.send(call(10, "space_repo_run_check", task_id=work.task, check_id="test"), *work.reads(20))
        assert client.process.stdout is not None
        while unread(client.process.stdout.fileno()) < 60_000:  # of 64 KiB: the server cannot write
            time.sleep(0.05)
        assert work.person.ok("task", "show", work.task)["task"]["status"] == "working"
        work.let_go()
        work.wait_until_it_passed()
        client.process.send_signal(signal.SIGTERM)
        assert client.process.wait(60) == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_s17_a_check_outlives_the_process_that_its_client_kills(work: Work, number: signal.Signals) -> None:
    with peer(work.person.home) as client:
        client.send(HELLO, READY)
        client.receive()
        client.send(call(10, "space_repo_run_check", task_id=work.task, check_id="test", wait_s=0))
        while "id" not in (answer := client.receive()):
            pass  # progress
        run = answer["result"]["structuredContent"]
        assert run["state"] == "running"
        client.process.send_signal(number)
        client.process.wait(60)
    assert work.person("check", "wait", run["run_id"], "--timeout", "1").code == 5
    work.let_go()
    result = work.person.ok("check", "wait", run["run_id"])
    assert [r["verdict"] for r in result["runs"]] == ["passed", "passed"]


class Caller:
    """Raw connections of one session, and a client that behaves."""

    def __init__(self, server: AgentServer, http: httpx2.Client) -> None:
        self._url, self._http = httpx2.URL(server.url), http
        self._headers = {
            "authorization": f"Bearer {server.token}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
        }
        self._headers["mcp-session-id"] = self.post(HELLO).headers["mcp-session-id"]
        assert self.post(READY).status_code == 202

    def post(self, message: dict[str, Any]) -> httpx2.Response:
        return self._http.post(self._url, json=message, headers=self._headers)

    def raw(self, message: dict[str, Any]) -> bytes:
        body = json.dumps(message).encode()
        headers = {"host": f"{self._url.host}:{self._url.port}", "content-length": str(len(body)), **self._headers}
        lines = ["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode() + body

    def connect(self) -> closing[socket.socket]:
        """A connection that takes little before somebody reads."""
        found = socket.socket()
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        found.settimeout(60)
        found.connect((self._url.host, self._url.port))
        return closing(found)


def held(server: AgentServer) -> int:
    """Connections that the server has open, by proc_net_tcp(5): of one that is closed the inode is 0."""
    port = f":{httpx2.URL(server.url).port:04X}"
    rows = [line.split() for line in Path(f"/proc/{server.pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(port) and row[3] != "0A" and row[9] != "0" for row in rows)


def test_n14_slow_clients_over_http_hold_nobody_up_and_leave_nothing(work: Work) -> None:
    server = AgentServer(work.person.home, "http")
    server.start()
    try:
        with httpx2.Client(timeout=120) as http:
            caller = Caller(server, http)
            with caller.connect() as checking, caller.connect() as flooded, caller.connect() as slow:
                run = call(10, "space_repo_run_check", task_id=work.task, check_id="test")
                checking.sendall(caller.raw(run))
                flooded.sendall(b"".join(map(caller.raw, work.reads(100))))  # 9 MB of answers: more than any buffer
                *first, last = caller.raw(PING)
                for byte in first:
                    slow.sendall(bytes([byte]))
                assert "result" in caller.post(call(11, "space_repo_status", task_id=work.task)).text
                slow.sendall(bytes([last]))
                assert slow.recv(12) == b"HTTP/1.1 200"
                work.let_go()
                work.wait_until_it_passed()
                assert unread(flooded.fileno()) > 0
                assert held(server), "void"
        while held(server):
            time.sleep(0.1)
    finally:
        assert server.stop() == 0


def test_a_server_that_is_told_to_end_stops_its_checks_first(work: Work) -> None:
    server = AgentServer(work.person.home, "http")
    server.start()

    async def session() -> None:
        async with server.client() as client, anyio.create_task_group() as group:
            run = {"task_id": work.task, "check_id": "test"}
            group.start_soon(client.call_tool, "space_repo_run_check", run)
            await anyio.to_thread.run_sync(work.wait_until_it_begins)
            assert await anyio.to_thread.run_sync(server.stop) == 0

    with pytest.raises(BaseExceptionGroup):
        anyio.run(session)
    assert "test killed" in work.ended()
    assert server.said == ""
