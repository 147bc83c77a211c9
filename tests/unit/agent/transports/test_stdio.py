"""The MCP server over stdio: lines that are no messages, clients that are slow, silent or gone. Ids: THREATS N."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest

from sandbox.agent.agent import Agent
from sandbox.agent.transports import stdio, stdio_transport
from sandbox.agent.transports.long_lines import ENDS_BYTES, find_request_id
from sandbox.agent.transports.stdio_transport import StdioTransport
from sandbox.workbench import Workbench

PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
ABLE = {**HELLO, "params": {**HELLO["params"], "capabilities": {"elicitation": {}}}}  # type: ignore[dict-item]
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class Peer:
    """The client's end."""

    def __init__(self, end: socket.socket, served_by: threading.Thread) -> None:
        self.socket, self.lines, self.thread = end, end.makefile("rb"), served_by

    def send(self, *lines: bytes | dict[str, Any]) -> None:
        for line in lines:
            self.socket.sendall((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")

    def receive(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.lines.readline())
        return found

    def closes(self) -> None:
        """And reads on."""
        self.socket.shutdown(socket.SHUT_WR)

    def rest(self) -> list[dict[str, Any]]:
        """All that comes until the server closes its end."""
        return [json.loads(line) for line in self.lines]

    def asks(self, tool: str, number: int, **arguments: Any) -> None:
        call = {"name": tool, "arguments": arguments}
        self.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call})


@contextmanager
def peer(home: Path, approvals: Literal["policy", "auto"] = "auto", threads: int = 16) -> Iterator[Peer]:
    """A session in a thread, which has to end with the client or before it."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(120)
    with ours, theirs, Workbench(home, environ={}) as workbench:
        agent = Agent(workbench, home, approvals, threads=anyio.CapacityLimiter(threads))
        ends = StdioTransport(ours.fileno(), ours.fileno())

        def serve() -> None:
            anyio.run(stdio.serve, agent, ends)
            with suppress(OSError):
                ours.shutdown(socket.SHUT_RDWR)

        thread = threading.Thread(target=serve)
        thread.start()
        client = Peer(theirs, thread)
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
    "surrogate-in-id": b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
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


BAD_REQUESTS = {
    "surrogate": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\\ud83d"}}', 1, "half of a character"),
    "surrogate-bytes": (b'{"jsonrpc":"2.0","id":"a","method":"ping","params":{"a":"\xed\xa0\xbd"}}', "a", "half of"),
    "too-deep": (
        b'{"jsonrpc":"2.0","id":2,"method":"ping","params":{"a":' + b"[" * 400 + b"]" * 400 + b"}}",
        2,
        "deep",
    ),
    "list": (b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":[1]}', 3, "params"),
    "text": (b'{"jsonrpc":"2.0","id":4,"method":"tools/call","params":"x"}', 4, "params"),
    "version": (b'{"id":5,"method":"ping"}', 5, "JSON-RPC"),
}


@pytest.mark.parametrize(("line", "number", "named"), BAD_REQUESTS.values(), ids=BAD_REQUESTS)
def test_a_bad_request_with_an_id_is_answered_with_it(tmp_path: Path, line: bytes, number: object, named: str) -> None:
    """Else its call would wait for ever. `JSON.stringify` writes half of an emoji that was cut."""
    with peer(tmp_path / "home") as client:
        client.send(line)
        answer = client.receive()
        assert (answer["id"], named in answer["error"]["message"]) == (number, True), answer
        assert answer["error"]["code"] in {-32600, -32602}
        client.send(PING)
        assert client.receive()["id"] == 7


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_a_request_in_another_encoding_is_not_said_to_be_too_deep(tmp_path: Path, encoding: str) -> None:
    """It is answered with its id, as each that can be read."""
    with peer(tmp_path / "home") as client:
        client.send(json.dumps(PING).encode(encoding))
        answer = client.receive()
        assert (answer["id"], answer["error"]["code"]) == (7, -32700)
        assert "UTF-8 without a BOM" in answer["error"]["message"]


def test_a_bad_answer_gets_no_answer_with_its_id(tmp_path: Path) -> None:
    """The id is one of ours: the client would take an error with it for the answer to its own call."""
    with peer(tmp_path / "home") as client:
        client.send(b'{"jsonrpc":"2.0","id":7,"result":{"a":"\\ud800"}}')
        assert client.receive()["id"] is None


def test_what_needs_no_answer_gets_none(tmp_path: Path) -> None:
    """Empty lines, notifications, answers nobody waits for: each would be taken for the answer to something else."""
    with peer(tmp_path / "home") as client:
        client.send(b"", b"  \r", READY, {**READY, "params": {"id": 5}}, {"jsonrpc": "2.0", "id": 99, "result": {}})
        client.send({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "no JSON"}}, PING)
        assert client.receive()["id"] == 7


def test_n12_a_line_that_is_too_long_is_refused_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: one that is as long as it may be."""
    monkeypatch.setattr(stdio_transport, "MAX_LINE_BYTES", 100_000)
    monkeypatch.setattr(stdio, "MAX_LINE_BYTES", 100_000)
    with peer(tmp_path / "home") as client:
        client.send(json.dumps(PING).encode().ljust(100_001), json.dumps(PING).encode().ljust(100_000))
        assert client.receive()["error"]["code"] == -32700
        assert client.receive()["id"] == 7


LONG = b'"' + b"x" * 300_000 + b'"'
TOO_LONG = {
    "id first": (b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":' + LONG + b"}", 3),
    "id last": (b'{"method":"tools/call","params":{"id":4,"a":' + LONG + b'},"jsonrpc":"2.0", "id": "n-5"}\r', "n-5"),
    "an answer to us": (b'{"jsonrpc":"2.0","id":1,"result":' + LONG + b"}", None),
    "an inner id": (b'{"method":"tools/call","params":{"a":' + LONG + b',"id":6}}', None),
    "an id in a text": (b'{"method":"x","params":{"a":' + LONG + b',"b,\\"id\\":6}"}}', None),
    "an inner method": (b'{"jsonrpc":"2.0","id":6,"result":{"method":"x"},"a":' + LONG + b"}", None),
    "no JSON": (b"x" * 300_000, None),
    "deep": (b'{"method":' + b"[" * 300_000, None),
}


@pytest.mark.parametrize(("line", "number"), TOO_LONG.values(), ids=TOO_LONG)
def test_a_request_that_is_too_long_is_answered_with_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes, number: object
) -> None:
    """Its call would wait until its time is over. An id that may be no request's is not taken."""
    monkeypatch.setattr(stdio_transport, "MAX_LINE_BYTES", 100_000)
    monkeypatch.setattr(stdio, "MAX_LINE_BYTES", 100_000)
    with peer(tmp_path / "home") as client:
        client.send(line, PING)
        answer = client.receive()
        assert (answer["id"], answer["error"]["code"]) == (number, -32700)
        assert "more than 16777216 bytes" in answer["error"]["message"]
        assert client.receive()["id"] == 7


def test_the_id_of_a_long_line_is_not_half_of_one() -> None:
    """Control: the same line, whose number is whole."""
    start = b'{"method":"x","a":"'
    line = start + b"x" * (ENDS_BYTES - len(start) - len(b'","id":12')) + b'","id":12'
    assert len(line) == ENDS_BYTES
    assert find_request_id(line + b'34,"b":' + LONG) is None
    assert find_request_id(line.replace(b"x", b"", 1) + b',"b":' + LONG) == 12


def test_n14_a_client_that_sends_byte_by_byte_is_answered(tmp_path: Path) -> None:
    with peer(tmp_path / "home") as client:
        for byte in json.dumps(PING).encode() + b"\n":
            client.socket.sendall(bytes([byte]))
        assert client.receive()["id"] == 7


@pytest.mark.parametrize("gone", [False, True], ids=["closes", "also-reads-no-more"])
def test_n14_the_server_ends_with_a_client_that_reads_no_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    monkeypatch.setattr(stdio, "DRAIN_TIMEOUT_S", 0.1)
    monkeypatch.setattr(stdio, "ANSWERS_S", 0.1)
    with peer(tmp_path / "home") as client:
        client.send(HELLO, READY)
        client.receive()
        for number in range(200):  # the list is about 30 kB: together more than any buffer between us
            client.send({"jsonrpc": "2.0", "id": number + 10, "method": "tools/list"})
        if gone:
            client.socket.shutdown(socket.SHUT_RD)


# --- a client that closes its end and reads on, as `printf ... | sandbox mcp` does


def test_all_that_was_asked_is_answered_also_when_the_client_closes_at_once(tmp_path: Path) -> None:
    """The last request also without the end of its line."""
    with peer(tmp_path / "home") as client:
        client.send(HELLO, READY)
        for number in range(10, 60):
            client.asks("space_repo_list", number)
        client.socket.sendall(json.dumps(PING).encode())
        client.closes()
        answers = client.rest()
        assert sorted(a["id"] for a in answers) == [1, 7, *range(10, 60)]
        assert all("result" in a for a in answers)


MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
LISTEN = {
    "jsonrpc": "2.0",
    "id": 5,
    "method": "subscriptions/listen",
    "params": {"_meta": MODERN, "notifications": {"toolsListChanged": True}},
}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that waits for answers as long as there may be any."""
    monkeypatch.setattr(stdio, "ANSWERS_S", 3600.0)


@pytest.mark.usefixtures("patient")
def test_a_client_that_listens_is_not_waited_for_when_it_closes(tmp_path: Path) -> None:
    with peer(tmp_path / "home") as client:
        client.send(LISTEN)
        assert client.receive()["method"] == "notifications/subscriptions/acknowledged"
        client.closes()
        client.rest()


@pytest.mark.usefixtures("patient")
def test_a_client_that_was_asked_and_closes_is_not_waited_for(tmp_path: Path) -> None:
    with peer(tmp_path / "home", "policy") as client:
        client.send(ABLE, READY)
        client.receive()
        client.asks("space_repo_clone", 2, url="https://example.org/a/b.git")
        assert client.receive()["method"] == "elicitation/create"
        client.closes()
        client.rest()


@pytest.mark.parametrize("answer", [{"error": {"code": -32601, "message": "no"}}, {"result": {"action": "perhaps"}}])
def test_a_client_that_fails_to_ask_its_user_leaves_the_question_open(tmp_path: Path, answer: dict[str, Any]) -> None:
    with peer(tmp_path / "home", "policy") as client:
        client.send(ABLE, READY)
        client.receive()
        client.asks("space_repo_clone", 2, url="https://example.org/a/b.git")
        client.send({"jsonrpc": "2.0", "id": client.receive()["id"], **answer})
        assert client.receive()["result"]["structuredContent"]["error"]["code"] == "approval_required"


def test_a_client_that_dies_with_answers_unread_is_one_that_closes(tmp_path: Path) -> None:
    """The kernel tells of it by an error: ECONNRESET of a socket, as which Node makes the pipes of its children."""
    ours, theirs = socket.socketpair()
    with ours, Workbench(tmp_path / "home", environ={}) as workbench:
        ours.send(b"unread")
        theirs.close()
        anyio.run(stdio.serve, Agent(workbench, tmp_path / "home"), StdioTransport(ours.fileno(), ours.fileno()))


@pytest.mark.usefixtures("patient")
def test_a_client_that_died_is_not_waited_for_though_nothing_is_written_to_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, peer(tmp_path / "home") as client:
        silent.settimeout(120)
        client.send(HELLO, READY)
        client.receive()
        client.asks("space_repo_clone", 2, url=f"https://127.0.0.1:{silent.getsockname()[1]}/a/b.git")
        with closing(silent.accept()[0]):
            client.socket.shutdown(socket.SHUT_RDWR)
            client.thread.join(60)
            assert not client.thread.is_alive()


def test_a_remote_that_says_nothing_holds_up_no_call_about_what_is_here_nor_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it takes all the threads of its kind; and who reads no answer to it is not waited for either."""
    monkeypatch.setattr(stdio, "ANSWERS_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent, peer(tmp_path / "home", threads=1) as client:
        silent.settimeout(120)
        client.send(HELLO, READY)
        client.receive()
        client.asks("space_repo_clone", 2, url=f"https://127.0.0.1:{silent.getsockname()[1]}/a/b.git")
        with closing(silent.accept()[0]):
            client.asks("space_repo_list", 3)
            assert client.receive()["id"] == 3
            client.closes()
            client.rest()
