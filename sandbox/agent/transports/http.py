"""Serve clients over streamable HTTP: on loopback by default, every request with the bearer token.

The token is in a file that only its owner can read. It is checked first, so that a request without it learns only that
it is missing. Then the SDK checks Host and Origin (DNS rebinding), and sessions.
"""

from __future__ import annotations

import hmac
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import anyio
import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox.agent.agent import Agent
from sandbox.agent.server import make_server
from sandbox.agent.transports.address import (
    TOKEN_FILE,
    list_authorities,
    make_url,
    open_listener,
    parse_address,
    require_loopback,
)
from sandbox.agent.transports.sessions import SPARE, LimitSessions
from sandbox.agent.transports.shutdown import handle_signals
from sandbox.agent.transports.timeouts import TimeoutProtocol
from sandbox.store.token_file import read_token

MAX_BODY_BYTES = 16 * 1024**2
_GRACE_S = 5


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
        app = RequireToken(make_app(agent, host, bound), token)
        server = make_uvicorn(app, agent.workbench.end_network)
        with handle_signals(server.handle_exit):
            on_ready(make_url(host, bound) + "/mcp", path)
            anyio.run(server.serve, [listener])


def make_uvicorn(
    app: ASGIApp, end_network: Callable[[], None], protocol: type[TimeoutProtocol] = TimeoutProtocol
) -> LifelongServer:
    """A server for our applications; `end_network`: called when it begins to shut down."""
    return LifelongServer(
        end_network,
        uvicorn.Config(
            app,
            http=protocol,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE_S,
        ),
    )


class LifelongServer(uvicorn.Server):
    """Leaves signals to us: uvicorn would raise them again after it stopped, with another exit code for each.

    `finish_calls`: awaited when the server accepts no more requests, before it cuts off what takes longer than
    `_GRACE_S`.
    """

    def __init__(self, end_network: Callable[[], None], config: uvicorn.Config) -> None:
        super().__init__(config)
        self._end_network = end_network
        self.finish_calls: Callable[[], Awaitable[None]] | None = None

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As in uvicorn, without its error and traceback for each answer that the shutdown interrupts."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self._end_network()
        if self.finish_calls is not None:
            self._refuse_requests(sockets or [])
            await self.finish_calls()
        await super().shutdown(sockets)

    def _refuse_requests(self, sockets: list[socket.socket]) -> None:
        """The first steps of uvicorn's shutdown: a connection ends after the answer that it waits for."""
        for server in self.servers:
            server.close()
        for listener in sockets:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]  # a generator there
        """Install no handlers."""
        return nullcontext()


_REFUSAL = (
    "This request has no token, or a wrong one.\n"
    "Send the header `Authorization: Bearer TOKEN`: the server printed where the token is.\n"
)


class RequireToken:
    """Answers 401 to every request without the token, for any path and method."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._wanted = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection."""
        if scope["type"] == "lifespan" or (scope["type"] == "http" and self._has_token(scope)):
            await self._app(scope, receive, send)
            return
        if scope["type"] == "http":
            await PlainTextResponse(_REFUSAL, 401, {"www-authenticate": "Bearer"})(scope, receive, send)

    def _has_token(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._wanted)  # RFC 9110, 11.1


def make_app(agent: Agent, host: str, port: int, routes: Sequence[Route] = ()) -> ASGIApp:
    """The MCP endpoint, at `/mcp`, for requests that name this host and port, and other routes beside it."""
    authorities = list_authorities(host, port)
    security = TransportSecuritySettings(
        allowed_hosts=authorities, allowed_origins=[f"http://{authority}" for authority in authorities]
    )
    app = make_server(agent).streamable_http_app(
        transport_security=security,
        host=host,
        max_request_body_size=MAX_BODY_BYTES,
        max_sessions=agent.max_sessions + SPARE,
        custom_starlette_routes=list(routes),
    )
    return LimitSessions(app, agent.max_sessions)
