"""How much of requests' bodies is in memory at once.

A body is kept until its request is answered. One alone has a limit, but each of 256 connections may bring one: an agent
with the token could fill the memory of the process that also carries out the calls of others. So bodies wait for room
before their first byte is read; small ones always have it.
"""

from __future__ import annotations

import asyncio

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

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
        self._freed = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the lifespan."""
        lengths = dict(scope["headers"]) if scope["type"] == "http" else {}
        wanted = _measure(lengths)
        if wanted and not await self._take(wanted):
            await _BUSY(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._give_back(wanted)

    async def _take(self, wanted: int) -> bool:
        """Whether there was room in time."""
        try:
            async with asyncio.timeout(self._wait_s):
                while self._left < wanted:
                    await self._freed.wait()
        except TimeoutError:
            return False
        self._left -= wanted
        return True

    def _give_back(self, wanted: int) -> None:
        self._left += wanted
        self._freed.set()
        self._freed = asyncio.Event()


def _measure(headers: dict[bytes, bytes]) -> int:
    """The bytes that a body may take; 0 for a small one. h11 has checked the number."""
    length = MAX_BODY_BYTES if _CHUNKED in headers else min(int(headers.get(_LENGTH, b"0")), MAX_BODY_BYTES)
    return length if length > SMALL_BYTES else 0
