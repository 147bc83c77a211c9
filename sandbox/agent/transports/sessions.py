"""Limit the sessions of the older protocol over HTTP: each takes about 40 kB until it ends, and few clients end theirs.

Above the limit the session that was idle longest is ended as its client would do it: with DELETE. If that client
returns, it gets 404, and the protocol requires it to begin a new session. While all sessions are busy, a new one gets
503 from the SDK.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

from starlette.types import ASGIApp, Message, Receive, Scope, Send

SPARE = 16
"""Sessions above the limit that may begin at the same moment."""

_NAME = b"mcp-session-id"
_COPIED_HEADERS = {b"host", b"origin"}
_GONE = 404


class LimitSessions:
    """Keeps about `limit` sessions of the wrapped application."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app, self._most = app, limit
        self._requests: OrderedDict[bytes, int] = (
            OrderedDict()
        )  # running requests by session, least recently used first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the lifespan."""
        name = _session_in(scope.get("headers", ()))
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif name is None:
            begun: list[bytes] = []
            await self._app(scope, receive, partial(self._note_new_session, begun, send))
            await self._end_idle(scope, begun)
        else:
            await self._forward(name, scope, receive, send)

    async def _note_new_session(self, begun: list[bytes], send: Send, message: Message) -> None:
        name = _session_in(message.get("headers", ()))
        if name is not None and message["status"] < _GONE:
            self._requests.setdefault(name, 0)
            begun.append(name)
        await send(message)

    async def _forward(self, name: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        if name in self._requests:
            self._requests[name] += 1
            self._requests.move_to_end(name)
        try:
            await self._app(scope, receive, partial(self._note_end, name, scope["method"], send))
        finally:
            if name in self._requests:
                self._requests[name] -= 1

    async def _note_end(self, name: bytes, method: str, send: Send, message: Message) -> None:
        status = message.get("status", 0)
        if status == _GONE or (method == "DELETE" and 0 < status < _GONE):
            self._requests.pop(name, None)
        await send(message)

    async def _end_idle(self, scope: Scope, begun: list[bytes]) -> None:
        """End idle sessions. `scope`: of an accepted request, so that ours is too; `begun`: the session it began."""
        while len(self._requests) > self._most:
            idle = (name for name, requests in self._requests.items() if not requests and name not in begun)
            name = next(idle, None)
            if name is None:
                return
            del self._requests[name]
            headers = [(key, value) for key, value in scope["headers"] if key in _COPIED_HEADERS]
            await self._app({**scope, "method": "DELETE", "headers": [*headers, (_NAME, name)]}, _empty_body, _discard)


def _session_in(headers: list[tuple[bytes, bytes]] | tuple[()]) -> bytes | None:
    return next((value for key, value in headers if key.lower() == _NAME), None)


async def _empty_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _discard(_message: Message) -> None:
    pass
