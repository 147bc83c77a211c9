"""Calls that have not been answered yet: an upgrade of the daemon waits for them, however long they wait themselves."""

from __future__ import annotations

import asyncio
import time

from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox.agent.transports.method_names import ENDLESS

_LOOK_S = 0.05
_LONGEST_S = 3600.0
"""As long as a call may wait."""


class CallsInProgress:
    """Counts requests that call something. A stream, which a client only reads, has no end that could be waited for."""

    def __init__(self) -> None:
        self._count = 0
        self._is_cut_off = False

    def counting(self, app: ASGIApp) -> ASGIApp:
        """The application, with its calls counted. It stands behind the guard: a request without the token could hang,
        and the upgrade would wait for it.
        """

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if not _is_call(scope):
                await app(scope, receive, send)
                return
            self._count += 1
            try:
                await app(scope, receive, send)
            finally:
                self._count -= 1

        return counted

    async def wait_until_none(self) -> None:
        """Until the last one was answered, or `cut_off`."""
        until = time.monotonic() + _LONGEST_S
        while self._count and not self._is_cut_off and time.monotonic() < until:
            await asyncio.sleep(_LOOK_S)

    def cut_off(self) -> None:
        """Wait no more. Also for a signal handler."""
        self._is_cut_off = True


def _is_call(scope: Scope) -> bool:
    """Not the request of MCP that only listens; its clients name the method in a header, which the SDK compares."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return False
    return (b"mcp-method", ENDLESS.encode()) not in scope["headers"]
