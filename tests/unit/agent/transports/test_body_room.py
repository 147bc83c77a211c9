"""S168: bodies of requests that together fill the memory. Over real sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import anyio
import pytest

from sandbox.agent.agent import MAX_BODY_BYTES
from sandbox.agent.transports.body_room import SMALL_BYTES, BodyRoom
from tests.unit.agent.transports.test_http import listening

LARGE = 4 * SMALL_BYTES
CHUNKED = "transfer-encoding: chunked"


class Keeper:
    """Reads the bodies of all requests, then answers; those of `/hold` when `release` is set."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.kept: list[int] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        number, more = len(self.kept), True
        self.kept.append(0)
        while more:
            message = await receive()
            self.kept[number] += len(message.get("body", b""))
            more = message.get("more_body", False)
        while scope["path"] == "/hold" and not self.release.is_set():
            await anyio.sleep(0.01)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def sending(port: int, path: str, head: str, body: bytes = b"") -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(f"POST {path} HTTP/1.1\r\nhost: x\r\n{head}\r\n\r\n".encode() + body)
        yield client


def status(client: socket.socket) -> int:
    return int(client.recv(1000).split()[1])


@pytest.mark.parametrize("is_bounded", [True, False], ids=["bounded", "control"])
def test_s168_large_bodies_together_have_a_bound(*, is_bounded: bool) -> None:
    keeper = Keeper()
    app = BodyRoom(keeper, room_bytes=2 * LARGE, wait_s=0.5) if is_bounded else keeper
    with listening(lambda _: app) as port, ExitStack() as stack:

        def send(head: str, body: bytes = b"", path: str = "/hold") -> socket.socket:
            return stack.enter_context(sending(port, path, head, body))

        try:
            first = [send(f"content-length: {LARGE}", bytes(LARGE)) for _ in range(2)]
            assert status(send(f"content-length: {SMALL_BYTES}", bytes(SMALL_BYTES), "/small")) == 200
            more = [send(f"content-length: {LARGE}", bytes(LARGE), "/large") for _ in range(2)]
            assert [status(one) for one in more] == [503 if is_bounded else 200] * 2
            large = [size for size in keeper.kept if size > SMALL_BYTES]
            assert sum(large) <= 2 * LARGE if is_bounded else sum(large) > 2 * LARGE
        finally:
            keeper.release.set()
        assert [status(one) for one in first] == [200, 200]
        assert status(send(f"content-length: {LARGE}", bytes(LARGE), "/large")) == 200, "there is room again"


def chunk(content: bytes) -> bytes:
    return f"{len(content):x}\r\n".encode() + content + b"\r\n"


def test_s168_a_large_body_without_a_length_may_be_as_long_as_any() -> None:
    keeper = Keeper()
    with listening(lambda _: BodyRoom(keeper, room_bytes=2 * LARGE, wait_s=0.2)) as port:
        with sending(port, "/large", CHUNKED, chunk(bytes(LARGE)) + chunk(b"")) as client:
            assert status(client) == 503
        with sending(port, "/large", f"content-length: {LARGE}", bytes(LARGE)) as client:
            assert status(client) == 200, "the control"


def test_small_bodies_without_a_length_take_no_room_while_they_are_answered() -> None:
    keeper = Keeper()
    with listening(lambda _: BodyRoom(keeper, room_bytes=LARGE, wait_s=0.2)) as port, ExitStack() as stack:
        small = chunk(b"xy") + chunk(b"")
        held = [stack.enter_context(sending(port, "/hold", CHUNKED, small)) for _ in range(5)]
        try:
            with sending(port, "/large", f"content-length: {LARGE}", bytes(LARGE)) as client:
                assert status(client) == 200
        finally:
            keeper.release.set()
        assert [status(one) for one in held] == [200] * 5
    assert sorted(keeper.kept) == [2] * 5 + [LARGE]


def test_a_large_body_without_a_length_keeps_what_it_has_when_it_is_whole() -> None:
    keeper = Keeper()
    with listening(lambda _: BodyRoom(keeper, room_bytes=MAX_BODY_BYTES + LARGE, wait_s=30.0)) as port:
        body = chunk(bytes(LARGE // 2)) * 2 + chunk(b"")
        with sending(port, "/hold", CHUNKED, body) as first, sending(port, "/large", CHUNKED, body) as second:
            try:
                assert status(second) == 200
            finally:
                keeper.release.set()
            assert status(first) == 200
    assert keeper.kept == [LARGE, LARGE]


def test_requests_that_wait_for_room_get_it_in_their_order() -> None:
    """The third has room at once, but would pass the second."""
    keeper = Keeper()
    with listening(lambda _: BodyRoom(keeper, room_bytes=2 * LARGE, wait_s=30.0)) as port:

        def send(path: str, size: int) -> AbstractContextManager[socket.socket]:
            return sending(port, path, f"content-length: {size}", bytes(size))

        def send_after() -> None:
            """A request that is answered after the one before it was read."""
            with send("/small", 1) as client:
                assert status(client) == 200

        with send("/hold", LARGE) as first:
            while LARGE not in keeper.kept:
                time.sleep(0.01)
            with send("/large", 2 * LARGE) as second:
                send_after()
                with send("/large", LARGE) as third:
                    send_after()
                    keeper.release.set()
                    assert [status(one) for one in (first, second, third)] == [200] * 3
    assert keeper.kept == [LARGE, 1, 1, 2 * LARGE, LARGE]


def test_s168_a_client_that_leaves_gives_its_room_back() -> None:
    keeper = Keeper()
    with listening(lambda _: BodyRoom(keeper, room_bytes=LARGE, wait_s=30.0)) as port:
        with sending(port, "/large", f"content-length: {LARGE}", b"x"):
            pass
        with sending(port, "/large", f"content-length: {LARGE}", bytes(LARGE)) as client:
            assert status(client) == 200
