"""Serve clients over streamable HTTP: on loopback by default, every request with the bearer token.

The token is in a file that only its owner can read. It is checked first, so that a request without it learns only that
it is missing. Then the SDK checks Host and Origin (DNS rebinding), and sessions.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from pathlib import Path

import anyio
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox.agent.agent import Agent
from sandbox.agent.transports.address import TOKEN_FILE, make_url, open_listener, parse_address, require_loopback
from sandbox.agent.transports.body_room import BodyRoom
from sandbox.agent.transports.lifelong_server import make_uvicorn
from sandbox.agent.transports.mcp_endpoint import make_app
from sandbox.agent.transports.shutdown import handle_signals
from sandbox.agent.transports.timeouts import ADMITTED
from sandbox.store.token_file import read_token


def serve_http(agent: Agent, address: str, token_file: Path | None, on_ready: Callable[[str, Path], None]) -> None:
    """Serve at `HOST:PORT` (port 0: any free one) until a signal; `ready` is called with the URL and the token's file.

    Raises: `invalid_input` for a malformed address, or for one that other hosts can reach without a `token_file`.
    """
    host, port = parse_address(address)
    require_loopback(host, token_file)
    path = token_file or agent.home / TOKEN_FILE
    token = read_token(path, create=token_file is None)
    listener = open_listener(host, port)
    with listener:
        bound = int(listener.getsockname()[1])
        app = RequireToken(BodyRoom(make_app(agent, host, bound)), token)
        server = make_uvicorn(app, agent.workbench.end_network)
        with handle_signals(server.handle_exit):
            on_ready(make_url(host, bound) + "/mcp", path)
            anyio.run(server.serve, [listener])


_REFUSAL = (
    "This request has no token, or a wrong one.\n"
    "Send the header `Authorization: Bearer TOKEN`: the server printed where the token is.\n"
)


class RequireToken:
    """Answers 401 to every request without the token, for any path and method, and ends its connection."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._wanted = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection."""
        if scope["type"] == "lifespan" or (scope["type"] == "http" and self._has_token(scope)):
            scope[ADMITTED] = True
            await self._app(scope, receive, send)
            return
        if scope["type"] == "http":
            headers = {"www-authenticate": "Bearer", "connection": "close"}
            await PlainTextResponse(_REFUSAL, 401, headers)(scope, receive, send)

    def _has_token(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._wanted)  # RFC 9110, 11.1
