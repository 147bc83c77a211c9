"""S168: bodies of requests that together fill the memory. Over real sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import anyio
import pytest

from sandbox.agent.transports.body_room import SMALL_BYTES, BodyRoom
from tests.unit.agent.transports.test_http import listening

LARGE = 4 * SMALL_BYTES


class Keeper:
    """Keeps the bodies of all requests until `release`, then answers. `/now` is answered at once."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.kept: dict[int, int] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while scope["path"] != "/now":
            message = await receive()
            body += message.get("body", b"")
            self.kept[id(scope)] = len(body)
            if not message.get("more_body"):
                break
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
            large = [size for size in keeper.kept.values() if size > SMALL_BYTES]
            assert sum(large) <= 2 * LARGE if is_bounded else sum(large) > 2 * LARGE
        finally:
            keeper.release.set()
        assert [status(one) for one in first] == [200, 200]
        assert status(send(f"content-length: {LARGE}", bytes(LARGE), "/large")) == 200, "there is room again"


def test_s168_a_body_without_a_length_may_be_as_long_as_any() -> None:
    keeper = Keeper()
    with listening(lambda _: BodyRoom(keeper, room_bytes=2 * LARGE, wait_s=0.2)) as port:
        with sending(port, "/large", "transfer-encoding: chunked", b"1\r\nx\r\n0\r\n\r\n") as client:
            assert status(client) == 503
        with sending(port, "/large", "content-length: 1", b"x") as client:
            assert status(client) == 200, "the control"


def test_s168_a_client_that_leaves_gives_its_room_back() -> None:
    keeper = Keeper()
    with listening(lambda _: BodyRoom(keeper, room_bytes=LARGE, wait_s=30.0)) as port:
        with sending(port, "/large", f"content-length: {LARGE}", b"x"):
            pass
        with sending(port, "/large", f"content-length: {LARGE}", bytes(LARGE)) as client:
            assert status(client) == 200
