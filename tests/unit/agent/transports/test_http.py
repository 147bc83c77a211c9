"""The HTTP side of the MCP server with real sockets, in process: bounded sessions, slow heads. Ids: N07, N14, S150."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import anyio
import httpx2
import pytest
import uvicorn
from starlette.types import ASGIApp

from sandbox.agent.agent import Agent
from sandbox.agent.transports import address, http, mcp_endpoint
from sandbox.agent.transports.timeouts import TimeoutProtocol
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
PING = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
READS = {"accept": "application/json, text/event-stream"}


@contextmanager
def listening(make: Callable[[int], ASGIApp], protocol: Any = TimeoutProtocol) -> Iterator[int]:
    """Serve the application in a thread; the port."""
    with address.open_listener("127.0.0.1", 0) as listener:
        port = int(listener.getsockname()[1])
        server = uvicorn.Server(
            uvicorn.Config(make(port), http=protocol, log_level="error", timeout_graceful_shutdown=5)
        )
        thread = threading.Thread(target=anyio.run, args=(server.serve, [listener]))
        thread.start()
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()


class Visitor:
    """Begins sessions of the older protocol."""

    def __init__(self, port: int, client: httpx2.Client, workbench: Workbench, upstream: Path) -> None:
        self._url, self._client = f"http://127.0.0.1:{port}/mcp", client
        self.workbench, self.upstream = workbench, upstream

    def begin(self) -> tuple[int, str]:
        """The status, and the session's id where it is one."""
        answer = self._client.post(self._url, json=HELLO, headers=READS)
        return answer.status_code, answer.headers.get("mcp-session-id", "")

    def ping(self, session: str) -> int:
        return self._client.post(self._url, json=PING, headers={**READS, "mcp-session-id": session}).status_code

    def ask(self, session: str, method: str, **params: Any) -> str:
        message = {"jsonrpc": "2.0", "id": 3, "method": method, "params": params}
        answer = self._client.post(self._url, json=message, headers={**READS, "mcp-session-id": session})
        assert '"result"' in answer.text, answer.text
        return answer.text

    def end(self, session: str) -> int:
        return self._client.delete(self._url, headers={"mcp-session-id": session}).status_code

    def send(self, body: bytes, kind: str | None, method: str = "POST", origin: str | None = None) -> httpx2.Response:
        given = {**READS, "content-type": kind, "origin": origin}
        return self._client.request(
            method, self._url, content=body, headers={name: value for name, value in given.items() if value}
        )

    def listen(self, session: str) -> Any:
        """A request that stays open: the session is at work as long."""
        headers = {"accept": "text/event-stream", "mcp-session-id": session}
        return self._client.stream("GET", self._url, headers=headers)


@pytest.fixture
def visit(tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> Iterator[Visitor]:
    """A server that keeps three sessions, and one more while all are at work."""
    monkeypatch.setattr(mcp_endpoint, "SPARE", 1)
    with ExitStack() as stack:
        workbench = stack.enter_context(Workbench(tmp_path / "home", environ={}, allow_file=True))
        agent = Agent(workbench, tmp_path / "home", "auto", max_sessions=3)
        port = stack.enter_context(listening(lambda port: mcp_endpoint.make_app(agent, "127.0.0.1", port)))
        client = stack.enter_context(httpx2.Client(timeout=60, limits=httpx2.Limits(max_connections=50)))
        upstream.write("f", b"x\n")
        upstream.commit()
        yield Visitor(port, client, workbench, upstream.root)


def test_each_session_is_told_what_differs_from_the_list_it_was_shown(visit: Visitor) -> None:
    """Also when another session has been told of the same change before."""
    one, other = visit.begin()[1], visit.begin()[1]
    for session in (one, other):
        visit.ask(session, "tools/list")
    visit.workbench.clone(str(visit.upstream))
    for session in (one, other):
        with visit.listen(session) as stream:
            visit.ask(session, "tools/call", name="space_repo_list", arguments={})
            assert any("notifications/tools/list_changed" in line for line in stream.iter_lines())


def test_an_entry_says_which_client_over_http_and_does_not_hold_its_session(visit: Visitor) -> None:
    task = visit.workbench.create_task(visit.workbench.clone(str(visit.upstream)).repository.id).id
    sessions = [visit.begin()[1] for _ in range(2)]
    for session in sessions:
        visit.ask(session, "tools/call", name="space_repo_snapshot", arguments={"task_id": task, "label": session})
    by = [entry.by for entry in visit.workbench.log(task)[1:]]
    assert [(b.client, b.client_version, b.transport) for b in by if b] == [("t", "1", "http")] * 2
    assert len({b.session for b in by if b}) == 2
    assert not any(session in str(visit.workbench.log(task)) for session in sessions)


def test_n07_a_session_is_named_at_random_and_no_name_makes_one(visit: Visitor) -> None:
    names = [visit.begin()[1] for _ in range(3)]
    assert len(set(names)) == 3
    assert all(UUID(name).version == 4 for name in names), "122 random bits of the system's source"
    wrong = [str(uuid4()), names[0][:-1], names[0].upper() + "x", "../" + names[0]]
    assert [visit.ping(name) for name in (names[0], *wrong)] == [200, 404, 404, 404, 404]


def test_n14_the_session_that_was_idle_for_longest_ends(visit: Visitor) -> None:
    first, second, third = (visit.begin()[1] for _ in range(3))
    assert visit.ping(first) == 200, "now the second is the oldest"
    fourth = visit.begin()[1]
    assert [visit.ping(s) for s in (first, second, third, fourth)] == [200, 404, 200, 200]
    assert visit.end(third) == 200
    fifth = visit.begin()[1]
    assert [visit.ping(s) for s in (first, fourth, fifth)] == [200, 200, 200], "there was room"


def test_n14_a_session_at_work_is_not_ended_and_past_the_bound_a_new_one_is_refused(visit: Visitor) -> None:
    with ExitStack() as stack:
        names = []
        for _ in range(4):
            names.append(visit.begin()[1])
            assert stack.enter_context(visit.listen(names[-1])).status_code == 200
        assert visit.begin()[0] == 503
        assert [visit.ping(name) for name in names] == [200] * 4
    while any(visit.ping(name) == 200 for name in names):  # until the server has noticed that they are idle
        for _ in range(5):
            visit.begin()


def test_an_answer_waits_for_no_delayed_acknowledgement() -> None:
    """asyncio sets TCP_NODELAY on connections that say they are TCP's. Control: those of `create_server` do not."""
    with address.open_listener("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP


async def _slow(scope: Any, receive: Any, send: Any) -> None:
    """Answers after twice the time that a head may take."""
    if scope["type"] == "lifespan":
        return
    await anyio.sleep(2 * TimeoutProtocol.head_s)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.mark.parametrize("sent", [b"", b"G", b"GET / HTTP/1.1\r\nhost: x\r\nx: "], ids=["silent", "byte", "half"])
@pytest.mark.slow
def test_n14_a_head_that_does_not_come_is_not_awaited_for_ever(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(TimeoutProtocol, "head_s", 0.3)
    with listening(lambda _: _slow) as port, socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(sent)
        assert client.recv(1000) == b""


async def _deaf(scope: Any, receive: Any, send: Any) -> None:
    """Answers without a look at the body, as those get it who have no token."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


async def _listening(scope: Any, receive: Any, send: Any) -> None:
    """Answers when the body is whole, and takes its time."""
    if scope["type"] == "http":
        while (await receive()).get("more_body"):
            pass
        await _slow(scope, receive, send)


@pytest.mark.parametrize("app", [_deaf, _listening], ids=["answered", "awaited"])
@pytest.mark.slow
def test_n14_a_body_that_does_not_come_is_not_awaited_for_ever(monkeypatch: pytest.MonkeyPatch, app: Any) -> None:
    """Also when some of it comes, after which uvicorn has no deadline. Control: one that is whole is answered."""
    monkeypatch.setattr(TimeoutProtocol, "head_s", 0.2)
    monkeypatch.setattr(TimeoutProtocol, "body_s", 0.2)
    head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n"
    with listening(lambda _: app) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(head + b"body")
            assert client.recv(1000).startswith(b"HTTP/1.1 ")
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(head + b"b")
            if app is _deaf:
                assert client.recv(1000).startswith(b"HTTP/1.1 401")
            client.sendall(b"o")
            assert client.recv(1000) == b""


@pytest.mark.slow
def test_n14_an_answer_that_takes_long_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: it takes longer than a head may, twice over one connection."""
    monkeypatch.setattr(TimeoutProtocol, "head_s", 0.3)
    with listening(lambda _: _slow) as port, socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        for _ in range(2):
            client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            answer = b""
            while not answer.endswith(b"ok"):
                piece = client.recv(1000)
                assert piece, answer
                answer += piece


async def _plain(scope: Any, receive: Any, send: Any) -> None:
    """Answers at once."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


def _is_open(client: socket.socket) -> bool:
    """Whether the server has not closed a connection on which it owes nothing."""
    client.setblocking(False)
    try:
        return bool(client.recv(1000))
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


@pytest.mark.parametrize("most", [8, 1000], ids=["bounded", "control"])
def test_s150_strangers_do_not_take_all_descriptors(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Each connection is a descriptor of the process that carries out calls. Control: a bound that is not reached."""
    monkeypatch.setattr(TimeoutProtocol, "most_connections", most)
    with listening(lambda _: _plain) as port, ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(40)]
        for client in idle:
            with suppress(ConnectionError):
                client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nx: ")
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 200")
        assert sum(map(_is_open, idle)) == min(most - 1, len(idle))


@pytest.mark.slow
def test_s150_an_answer_that_is_not_read_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: it waits for its reader before it is given up."""
    monkeypatch.setattr(TimeoutProtocol, "write_s", 0.3)
    began, given_up = threading.Event(), threading.Event()

    async def _endless(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            began.set()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for _ in range(1000):  # more than any buffer holds; after the end of the connection it goes nowhere
                await send({"type": "http.response.body", "body": bytes(1 << 18), "more_body": True})
            given_up.set()

    with listening(lambda _: _endless) as port, socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert began.wait(60)
        assert not given_up.is_set()
        assert given_up.wait(60)


@pytest.mark.slow
def test_a_client_that_reads_slowly_gets_its_whole_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """For longer than a client that reads none of it may wait."""
    monkeypatch.setattr(TimeoutProtocol, "write_s", 1.5)
    size, pieces = 24 << 20, 40

    async def _large(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            length = [(b"content-length", str(size).encode())]
            await send({"type": "http.response.start", "status": 200, "headers": length})
            await send({"type": "http.response.body", "body": bytes(size)})

    with listening(lambda _: _large) as port, socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        found = len(client.recv(1 << 16).partition(b"\r\n\r\n")[2])
        while found < size:
            wanted = min(found + size // pieces, size)
            while found < wanted:
                piece = client.recv(wanted - found)
                assert piece, f"it ended after {found} of {size} bytes"
                found += len(piece)
            time.sleep(0.1)  # the pace of the client


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])
def test_n05_what_a_page_of_another_site_can_send_without_asking_is_refused(visit: Visitor, kind: str | None) -> None:
    """Control: the same body as JSON."""
    assert visit.send(json.dumps(HELLO).encode(), kind).status_code in {400, 415}
    assert visit.send(json.dumps(HELLO).encode(), "application/json").status_code == 200


def test_n04_nothing_is_shared_with_other_origins(visit: Visitor) -> None:
    for origin in ("http://evil.example", "null"):
        for method in ("OPTIONS", "POST", "GET"):
            answer = visit.send(json.dumps(HELLO).encode(), "application/json", method=method, origin=origin)
            assert answer.status_code >= 400
            assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (["Bearer secret"], 200),
        (["bearer  secret"], 200),
        (["BEARER secret"], 200),
        ([], 401),
        (["secret"], 401),
        (["Bearer"], 401),
        (["Bearer secret secret"], 401),
        (["Basic secret"], 401),
        (["Bearer Secret"], 401),
        (["Bearer secret", "Bearer secret"], 401),
        (["Bearer x", "Bearer secret"], 401),
    ],
    ids=str,
)
def test_n01_the_scheme_is_spelled_in_any_case_and_the_token_in_one(given: list[str], status: int) -> None:
    with listening(lambda _: http.RequireToken(_allowing, "secret")) as port, httpx2.Client(timeout=60) as client:
        headers = [("authorization", value) for value in given]
        answer = client.get(f"http://127.0.0.1:{port}/", headers=headers)
        assert (answer.status_code, "Authorization: Bearer" in answer.text) == (status, status == 401)


async def _allowing(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})
