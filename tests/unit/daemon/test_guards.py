"""S193: strangers at the daemon's TCP port, who have no token. Over real sockets."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import time
from contextlib import AsyncExitStack, ExitStack, suppress
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest
import uvicorn
from sse_starlette.sse import AppStatus
from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox.agent.transports.body_room import BodyRoom
from sandbox.agent.transports.lifelong_server import make_uvicorn
from sandbox.agent.transports.timeouts import TimeoutProtocol
from sandbox.daemon import ending as ending_module
from sandbox.daemon.ending import Ending
from sandbox.daemon.guards import METRICS, OPEN_PATHS, Network
from sandbox.daemon.routes import Applications
from sandbox.daemon.served_home import HttpSockets
from sandbox.daemon.web_server import WebServer
from tests.unit.agent.transports.test_http import listening

MOST = 8
TOKEN = "authorization: Bearer secret\r\n"
CHUNKED = "transfer-encoding: chunked\r\n"


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    """`/small` and what is open: at once; `/large`, and `/healthz?large`: with more than all buffers hold."""
    large = scope["path"] == "/large" or scope["query_string"] == b"large"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(1000 if large else 1):
        await send({"type": "http.response.body", "body": bytes(1 << 18 if large else 2), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _guard(app: ASGIApp) -> Network:
    return Network(BodyRoom(app), ["x"], "secret", lambda _scope: False, "watch")


def _send(port: int, stack: ExitStack, line: str, headers: str) -> socket.socket:
    client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
    with suppress(ConnectionError):
        client.sendall(f"{line} HTTP/1.1\r\nhost: x\r\n{headers}\r\n".encode())
    return client


def _read_status(client: socket.socket) -> int:
    """0: the server closed the connection without an answer."""
    with suppress(ConnectionError):
        if answer := client.recv(12):
            return int(answer.split()[1])
    return 0


@pytest.mark.parametrize("headers", [CHUNKED, "content-length: 5\r\n"], ids=["chunked", "length"])
@pytest.mark.parametrize("path", sorted(OPEN_PATHS))
def test_s193_a_path_that_is_open_awaits_no_body(path: str, headers: str) -> None:
    """Control: one that needs the token does."""
    with listening(lambda _: _guard(_answer)) as port, ExitStack() as stack:
        assert _read_status(_send(port, stack, f"GET {path}", headers)) == 413
        assert _read_status(_send(port, stack, f"POST {path}", headers)) == 405
        assert _read_status(_send(port, stack, f"GET {path}", "content-length: 0\r\n")) == 200
        waits = _send(port, stack, "POST /small", TOKEN + CHUNKED)
        assert _read_status(_send(port, stack, "POST /small", TOKEN)) == 200
        waits.settimeout(0.05)
        with pytest.raises(TimeoutError):
            waits.recv(1)


def test_s193_nor_does_the_path_that_the_token_for_metrics_opens() -> None:
    watch = "authorization: Bearer watch\r\n"
    with listening(lambda _: _guard(_answer)) as port, ExitStack() as stack:
        assert _read_status(_send(port, stack, f"GET {METRICS}", watch)) == 200
        assert _read_status(_send(port, stack, f"GET {METRICS}", watch + CHUNKED)) == 413
        assert _read_status(_send(port, stack, f"POST {METRICS}", watch + CHUNKED)) == 405


@pytest.mark.parametrize(
    ("line", "headers", "status"),
    [
        ("POST /healthz", CHUNKED, 200),
        ("GET /healthz?large", "", 200),
        ("GET /large", TOKEN, 0),
    ],
    ids=["body", "answer", "control"],
)
def test_s193_strangers_do_not_keep_connections(
    monkeypatch: pytest.MonkeyPatch, line: str, headers: str, status: int
) -> None:
    """By a body that they do not send, or an answer that they do not read. Control: who has the token keeps them."""
    monkeypatch.setattr(TimeoutProtocol, "most_connections", MOST)
    with listening(lambda _: _guard(_answer)) as port, ExitStack() as stack:
        for _ in range(MOST):
            client = _send(port, stack, line, headers)
            assert _read_status(client) in {200, 405}
        assert _read_status(_send(port, stack, "GET /small", TOKEN)) == status


def test_s193_a_body_that_no_guard_admitted_keeps_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should a path await the body of a stranger after all. Control: who has the token keeps connections so."""
    monkeypatch.setattr(TimeoutProtocol, "most_connections", MOST)
    monkeypatch.setattr("sandbox.daemon.guards._READ_ONLY_PATHS", frozenset())
    guard = _guard(_answer)
    asked: list[Scope] = []

    async def count(scope: Scope, receive: Receive, send: Send) -> None:
        asked.append(scope)
        await guard(scope, receive, send)

    for headers, status in [(CHUNKED, 200), (TOKEN + CHUNKED, 0)]:
        asked.clear()
        with listening(lambda _: count) as port, ExitStack() as stack:
            for _ in range(MOST):
                _send(port, stack, "POST /healthz", headers)
            while len(asked) <= MOST:  # the first is the lifespan
                time.sleep(0.01)
            assert _read_status(_send(port, stack, "GET /small", TOKEN)) == status


def test_s193_no_connection_leaves_the_bound_by_an_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvicorn uses a library for web sockets if one is installed. Control: its own choice."""
    library = ModuleType("uvicorn.protocols.websockets.auto")
    monkeypatch.setattr(library, "AutoWebSocketsProtocol", object, raising=False)
    monkeypatch.setitem(sys.modules, library.__name__, library)
    ours, control = make_uvicorn(_answer, lambda: None).config, uvicorn.Config(_answer)
    for config in (ours, control):
        config.load()
    assert (ours.ws_protocol_class, control.ws_protocol_class) == (None, object)


@pytest.mark.parametrize("is_admitted", [False, True], ids=["stranger", "control"])
def test_s193_an_upgrade_waits_for_no_request_that_was_not_admitted(
    monkeypatch: pytest.MonkeyPatch, *, is_admitted: bool
) -> None:
    monkeypatch.setattr(ending_module, "outlive_parent", lambda: None)
    monkeypatch.setattr(AppStatus, "should_exit", False)  # this process's streams of events go on after the test
    ending = Ending(MagicMock(), MagicMock())

    async def run() -> bool:
        asked = asyncio.Event()

        async def hang(scope: Scope, _receive: Receive, _send: Send) -> None:
            if scope["type"] == "http":
                asked.set()
                await asyncio.Event().wait()

        apps = Applications(hang, hang, lambda app: app if is_admitted else hang)
        async with AsyncExitStack() as stack:
            port = (listener := stack.enter_context(socket.create_server(("127.0.0.1", 0)))).getsockname()[1]
            server = WebServer(apps, MagicMock(), ending)
            server._server.config.timeout_graceful_shutdown = 0
            ending.attach(server)
            serving = asyncio.create_task(server.serve(HttpSockets(listener, None)))
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
            await asked.wait()
            ending.drain(signal.SIGUSR1, None)
            await asyncio.wait({serving}, timeout=1.0 if is_admitted else 60.0)
            ended = serving.done()
            ending.end_now(signal.SIGTERM, None)
            await serving
            return ended

    assert asyncio.run(run()) is not is_admitted
