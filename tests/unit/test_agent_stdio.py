"""The MCP server over stdio: lines that are no messages, clients that are slow, silent or gone. Ids: THREATS N."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from sandbox.agent import stdio, wire
from sandbox.agent.server import Agent
from sandbox.agent.wire import Wire
from sandbox.workbench import Workbench

PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class Peer:
    """The client's end."""

    def __init__(self, end: socket.socket) -> None:
        self.socket, self.lines = end, end.makefile("rb")

    def send(self, *lines: bytes | dict[str, Any]) -> None:
        for line in lines:
            self.socket.sendall((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")

    def receive(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.lines.readline())
        return found

    def asks(self, tool: str, number: int, **arguments: Any) -> None:
        call = {"name": tool, "arguments": arguments}
        self.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call})


@contextmanager
def peer(home: Path) -> Iterator[Peer]:
    """A session in a thread, which has to end with the client or before it."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(120)
    with ours, theirs, Workbench(home, environ={}) as workbench:
        agent, ends = Agent(workbench, home, "auto"), Wire(ours.fileno(), ours.fileno())
        thread = threading.Thread(target=anyio.run, args=(stdio.serve, agent, ends))
        thread.start()
        client = Peer(theirs)
        try:
            with client.lines:
                yield client
        finally:
            theirs.shutdown(socket.SHUT_WR)
            thread.join(120)
            assert not thread.is_alive()


NO_JSON = {
    "garbage": b"garbage",
    "open": b"{" * 100_000,
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "deep-request": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * 3000 + b"1" + b"}" * 3001,
    "surrogate": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\\ud800"}}',
    "bytes": b"\xff\xfe",
}
NO_MESSAGE = {
    "object": b"{}",
    "array": b"[]",
    "number": b"3",
    "half": b'{"jsonrpc":"2.0","id":3}',
    "null": b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
    "nan": b'{"jsonrpc":"2.0","method":"ping","id":NaN}',
    "list": b'{"jsonrpc":"2.0","\\u0069d":[],"method":"ping"}',
}


def test_n12_a_line_that_is_no_message_is_answered_and_the_session_goes_on(tmp_path: Path) -> None:
    with peer(tmp_path / "home") as client:
        for lines, code in ((NO_JSON, -32700), (NO_MESSAGE, -32600)):
            for name, line in lines.items():
                client.send(line)
                answer = client.receive()
                assert (name, answer["id"], answer["error"]["code"]) == (name, None, code)
        client.send(PING)
        assert client.receive() == {"jsonrpc": "2.0", "id": 7, "result": {}}


def test_what_needs_no_answer_gets_none(tmp_path: Path) -> None:
    """Empty lines, notifications, answers nobody waits for: each would be taken for the answer to something else."""
    with peer(tmp_path / "home") as client:
        client.send(b"", b"  \r", READY, {**READY, "params": {"id": 5}}, {"jsonrpc": "2.0", "id": 99, "result": {}})
        client.send({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "no JSON"}}, PING)
        assert client.receive()["id"] == 7


def test_n12_a_line_that_is_too_long_is_refused_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: one that is as long as it may be."""
    monkeypatch.setattr(wire, "MAX_LINE_BYTES", 100_000)
    monkeypatch.setattr(stdio, "MAX_LINE_BYTES", 100_000)
    with peer(tmp_path / "home") as client:
        client.send(json.dumps(PING).encode().ljust(100_001), json.dumps(PING).encode().ljust(100_000))
        assert client.receive()["error"]["code"] == -32700
        assert client.receive()["id"] == 7


def test_n14_a_client_that_sends_byte_by_byte_is_answered(tmp_path: Path) -> None:
    with peer(tmp_path / "home") as client:
        for byte in json.dumps(PING).encode() + b"\n":
            client.socket.sendall(bytes([byte]))
        assert client.receive()["id"] == 7


@pytest.mark.parametrize("gone", [False, True], ids=["closes", "also-reads-no-more"])
def test_n14_the_server_ends_with_a_client_that_reads_no_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    monkeypatch.setattr(stdio, "LAST_WORDS_S", 0.1)
    with peer(tmp_path / "home") as client:
        client.send(HELLO, READY)
        client.receive()
        for number in range(200):  # the list is about 30 kB: together more than any buffer between us
            client.send({"jsonrpc": "2.0", "id": number + 10, "method": "tools/list"})
        if gone:
            client.socket.shutdown(socket.SHUT_RD)
