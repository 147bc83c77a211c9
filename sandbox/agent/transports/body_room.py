"""How much of requests' bodies is in memory at once.

A body is kept until its request is answered. One alone has a limit, but each of 256 connections may bring one: an agent
with the token could fill the memory of the process that also carries out the calls of others. So bodies wait for room
before they are read; small ones always have it.

A chunked body does not say its length. It is read up to `SMALL_BYTES`; one that goes on takes the most that any may
have, in one step, because bodies that grow would wait for one another. At its end it keeps what it has.
"""

from __future__ import annotations

import asyncio
from collections import deque

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandbox.agent.agent import MAX_BODY_BYTES

ROOM_BYTES = 64 * 1024**2
"""Of all bodies together that are larger than `SMALL_BYTES`."""

SMALL_BYTES = 64 * 1024
WAIT_S = 10.0
"""How long a request waits for room; reached: it is refused with 503."""

_BUSY = PlainTextResponse("Too many large requests at once. Try again.\n", 503, {"retry-after": "1"})
_CHUNKED, _LENGTH = b"transfer-encoding", b"content-length"


class BodyRoom:
    """An application, for requests that may be read."""

    def __init__(self, app: ASGIApp, room_bytes: int = ROOM_BYTES, wait_s: float = WAIT_S) -> None:
        self._app, self._left, self._wait_s = app, room_bytes, wait_s
        self._turn, self._freed = asyncio.Lock(), asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the lifespan."""
        body = _Body(receive)
        kept = await _measure(dict(scope["headers"]), body) if scope["type"] == "http" else 0
        if kept and not await self._take(kept):
            await _BUSY(scope, receive, send)
            return

        async def receive_and_shrink() -> Message:
            nonlocal kept
            message = await body.receive()
            if body.is_whole and body.size < kept:
                self._give_back(kept - body.size)
                kept = body.size
            return message

        try:
            await self._app(scope, receive_and_shrink, send)
        finally:
            self._give_back(kept)

    async def _take(self, wanted: int) -> bool:
        """Whether there was room in time. Requests get it in their order, so that small ones do not pass a large one
        for ever.
        """
        try:
            async with asyncio.timeout(self._wait_s), self._turn:
                while self._left < wanted:
                    self._freed.clear()
                    await self._freed.wait()
                self._left -= wanted
        except TimeoutError:
            return False
        return True

    def _give_back(self, given: int) -> None:
        self._left += given
        self._freed.set()


class _Body:
    """The body of one request, of which the beginning may be read before the application asks for it."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._read: deque[Message] = deque()
        self.size, self.is_whole = 0, False

    async def read_small(self) -> bool:
        """Read up to the end, or past `SMALL_BYTES`. Whether it has ended, or its client has left."""
        while self.size <= SMALL_BYTES:
            message = await self._next()
            self._read.append(message)
            if self.is_whole or message["type"] != "http.request":
                break
        return self.size <= SMALL_BYTES

    async def receive(self) -> Message:
        """As `receive` of ASGI."""
        return self._read.popleft() if self._read else await self._next()

    async def _next(self) -> Message:
        message = await self._receive()
        self.size += len(message.get("body", b""))
        self.is_whole = self.is_whole or (message["type"] == "http.request" and not message.get("more_body"))
        return message


async def _measure(headers: dict[bytes, bytes], body: _Body) -> int:
    """The bytes that a body may take; 0 for a small one. h11 has checked the number."""
    if _CHUNKED in headers:
        return 0 if await body.read_small() else MAX_BODY_BYTES
    length = min(int(headers.get(_LENGTH, b"0")), MAX_BODY_BYTES)
    return length if length > SMALL_BYTES else 0
