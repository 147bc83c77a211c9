"""The HTTP server of the program before an upgrade: it answers the calls that wait, and cuts off streams."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from unittest.mock import MagicMock

import pytest
from sse_starlette.sse import AppStatus
from starlette.types import Receive, Scope, Send

from sandbox.agent.transports.lifelong_server import make_uvicorn
from sandbox.daemon import ending as ending_module
from sandbox.daemon import upgrade as upgrade_module
from sandbox.daemon.calls_in_progress import CallsInProgress
from sandbox.daemon.ending import Ending
from sandbox.daemon.routes import Applications
from sandbox.daemon.served_home import HttpSockets
from sandbox.daemon.upgrade import Upgrade
from sandbox.daemon.web_server import WebServer

DEADLINE_S = 60


@dataclass
class Site:
    """A call that is answered when `go_on` is set, and a stream without an end."""

    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun ", "more_body": True})
        headers = dict(scope["headers"])
        ends = scope["method"] == "POST" and headers.get(b"mcp-method") != b"subscriptions/listen"
        await (self.go_on if ends else asyncio.Event()).wait()
        await send({"type": "http.response.body", "body": b"answered"})


async def ask(port: int, method: str, stack: AsyncExitStack, headers: str = "") -> asyncio.StreamReader:
    """The answer from where its body begins."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    stack.callback(writer.close)
    writer.write(f"{method} / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n{headers}\r\n".encode())
    await reader.readuntil(b"begun ")
    return reader


async def drain(*, finishes_calls: bool) -> tuple[bytes, bytes]:
    """What came of a call and of a stream after the server began to end; the call could be answered after that."""
    site, calls = Site(), CallsInProgress()
    async with AsyncExitStack() as stack:
        port = (listener := stack.enter_context(socket.create_server(("127.0.0.1", 0)))).getsockname()[1]
        server = make_uvicorn(calls.counting(site), lambda: None)
        server.config.timeout_graceful_shutdown = 0
        serving = asyncio.create_task(server.serve([listener]))
        call, stream = await ask(port, "POST", stack), await ask(port, "GET", stack)
        await ask(port, "POST", stack, "mcp-method: subscriptions/listen\r\n")
        if finishes_calls:
            server.finish_calls = calls.wait_until_none
        server.should_exit = True
        await wait_until_refused(port)
        if not finishes_calls:
            await serving
        site.go_on.set()
        await serving
        return await call.read(), await stream.read()


async def wait_until_refused(port: int) -> None:
    with suppress(ConnectionError):
        while True:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            await writer.wait_closed()


def test_a_call_that_waits_is_answered_and_a_stream_is_cut_off() -> None:
    async def run(finishes_calls: bool) -> tuple[bytes, bytes]:
        return await asyncio.wait_for(drain(finishes_calls=finishes_calls), DEADLINE_S)

    call, stream = asyncio.run(run(True))
    assert b"answered" in call
    assert b"answered" not in stream
    call, _ = asyncio.run(run(False))
    assert b"answered" not in call, "the control"


def test_a_signal_to_end_ends_the_wait_for_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: without it the server still waits."""
    monkeypatch.setattr(ending_module, "outlive_parent", lambda: None)
    monkeypatch.setattr(AppStatus, "should_exit", False)  # this process's streams of events go on after the test
    end_network = MagicMock()
    ending, site = Ending(end_network, MagicMock()), Site()

    async def run() -> bytes:
        async with AsyncExitStack() as stack:
            port = (listener := stack.enter_context(socket.create_server(("127.0.0.1", 0)))).getsockname()[1]
            server = WebServer(Applications(site, site, lambda app: app), MagicMock(), ending)
            server._server.config.timeout_graceful_shutdown = 0
            ending.attach(server)
            serving = asyncio.create_task(server.serve(HttpSockets(listener, None)))
            call = await ask(port, "POST", stack)
            ending.drain(signal.SIGUSR1, None)
            await wait_until_refused(port)
            assert not serving.done(), "the control"
            assert not end_network.called
            ending.end_now(signal.SIGTERM, None)
            await asyncio.wait_for(serving, DEADLINE_S)
            return await call.read()

    assert b"answered" not in asyncio.run(run())
    assert end_network.called
    assert not ending.is_draining, "its checks are not waited for either"


def test_a_signal_before_the_first_client_ends_the_wait_and_one_while_http_is_imported_stops_the_server() -> None:
    """Control: a client that connects first ends the wait, too, and its server is not stopped."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listeners, unchanged = HttpSockets(listener, None), MagicMock(is_awaited=lambda: False)
        ending, served = Ending(MagicMock(), MagicMock()), MagicMock()
        with socket.create_connection(listener.getsockname()):
            assert ending.wait_for_client(listeners, unchanged)
        ending.attach(served)
        assert not served.stop.called
        ending, late = Ending(MagicMock(), MagicMock()), MagicMock()
        ending.end_now(signal.SIGTERM, None)
        assert not ending.wait_for_client(listeners, unchanged)
        ending.attach(late)
        assert late.stop.call_args.args == (signal.SIGTERM, None)


def test_a_signal_that_another_thread_got_ends_the_wait_for_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its handler runs in the main thread, which sleeps: a daemon whose main process was killed went on for good, and
    the next one could not listen. `late` ends a wait that does not notice.
    """
    monkeypatch.setattr(ending_module, "outlive_parent", lambda: None)
    ending = Ending(MagicMock(), MagicMock())
    before = signal.signal(signal.SIGUSR1, ending.drain)
    late = threading.Timer(DEADLINE_S, ending.end_now, (signal.SIGTERM, None))
    other = threading.Timer(0.2, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGUSR1))
    try:
        for timer in (late, other):
            timer.start()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            assert not ending.wait_for_client(HttpSockets(listener, None), MagicMock(is_awaited=lambda: False))
        assert late.is_alive()
    finally:
        late.cancel()
        signal.signal(signal.SIGUSR1, before)
    assert ending.is_draining


def test_after_an_upgrade_a_first_client_is_left_to_the_newer_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: the test above. The daemon's signal, here that of `told`, ends the wait."""
    monkeypatch.setattr(ending_module, "outlive_parent", lambda: None)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        ending, told = Ending(MagicMock(), MagicMock()), MagicMock()

        def begin() -> bool:
            told()
            ending.drain(signal.SIGUSR1, None)
            return True

        assert not ending.wait_for_client(HttpSockets(listener, None), MagicMock(is_awaited=begin))
        assert told.call_count == 1
        accepted, address = listener.accept()
        accepted.close()
        assert address == client.getsockname(), "it waits for the newer program"


def test_a_newer_program_that_is_not_started_is_awaited_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its interpreter may be gone. Control: at first the client is left to it."""
    monkeypatch.setattr(upgrade_module, "PATIENCE_S", 0.0)
    upgrade = Upgrade(MagicMock(has_changed=lambda: True), 0)
    assert not upgrade.is_awaited()
    monkeypatch.setattr(upgrade_module, "PATIENCE_S", 3600.0)
    assert upgrade.is_awaited()
    upgrade.noticed_s = time.monotonic() - 3601
    assert not upgrade.is_awaited()
    assert upgrade.has_begun(), "commands go on by themselves"
