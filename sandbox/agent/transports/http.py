"""Serve clients over streamable HTTP: on loopback by default, every request with the bearer token.

The token is in a file that only its owner can read. It is checked first, so that a request without it learns only that
it is missing. Then the SDK checks Host and Origin (DNS rebinding), and sessions.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import secrets
import socket
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import anyio
import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox.agent.agent import Agent
from sandbox.agent.server import make_server
from sandbox.agent.transports.sessions import SPARE, LimitSessions
from sandbox.agent.transports.shutdown import handle_signals
from sandbox.agent.transports.timeouts import TimeoutProtocol
from sandbox.errors import ErrorCode, SandboxError
from sandbox.store.home import Home, write_atomically

TOKEN_FILE = "mcp-token"  # noqa: S105 - the name of a file
MIN_TOKEN_CHARS = 32
MAX_BODY_BYTES = 16 * 1024**2
_GRACE_S = 5


def serve_http(agent: Agent, address: str, token_file: Path | None, on_ready: Callable[[str, Path], None]) -> None:
    """Serve at `HOST:PORT` (port 0: any free one) until a signal; `ready` is called with the URL and the token's file.

    Raises: `invalid_input` for a malformed address, or for one that other hosts can reach without a `token_file`.
    """
    host, port = parse_address(address)
    if not _is_loopback(host) and token_file is None:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"{host} can be reached from other machines",
            hint="Use 127.0.0.1, or give the file with the clients' token by --token-file; put a TLS proxy in front.",
        )
    path = token_file or agent.home / TOKEN_FILE
    token = read_token(path, create=token_file is None)
    listener = open_listener(host, port)
    with listener:
        bound = int(listener.getsockname()[1])
        app = RequireToken(make_app(agent, host, bound), token)
        _run_server(agent, app, listener, partial(on_ready, f"http://{_url_host(host)}:{bound}/mcp", path))


def _run_server(agent: Agent, app: ASGIApp, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    server = _Server(
        agent.workbench.end_network,
        uvicorn.Config(
            app,
            http=TimeoutProtocol,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE_S,
        ),
    )
    with handle_signals(server.handle_exit):
        on_ready()
        anyio.run(server.serve, [listener])


class _Server(uvicorn.Server):
    """Leaves signals to us: uvicorn would raise them again after it stopped, with another exit code for each."""

    def __init__(self, end_network: Callable[[], None], config: uvicorn.Config) -> None:
        super().__init__(config)
        self._end_network = end_network

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As in uvicorn, without its error and traceback for each answer that the shutdown interrupts."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self._end_network()
        await super().shutdown(sockets)

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]  # a generator there
        """Install no handlers."""
        return nullcontext()


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT` or `[HOST]:PORT`. Raises: `invalid_input`."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"{address[:100]!r} is not an address",
            hint="Use HOST:PORT, for example 127.0.0.1:8765; port 0 takes a free port.",
        )
    return host, int(port)


def read_token(path: Path, *, create: bool) -> str:
    """Read the token from a file. Raises: `policy_violation` if others can read it or it is too short."""
    if create and not path.exists():
        with Home(path.parent).locked("home"):
            if not path.exists():
                write_atomically(path, secrets.token_urlsafe(32).encode())
    try:
        open_to_others = stat.S_IMODE(path.stat().st_mode) & 0o077
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT, f"The token file {path} cannot be read", details=str(error)
        ) from error
    if open_to_others or len(token) < MIN_TOKEN_CHARS:
        why = "others can read it" if open_to_others else f"its token has fewer than {MIN_TOKEN_CHARS} characters"
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION, f"The token file {path} is not safe: {why}", hint=f"chmod 600 {path}"
        )
    return token


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
            headers = [(b"www-authenticate", b"Bearer"), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b""})

    def _has_token(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._wanted)  # RFC 9110, 11.1


def make_app(agent: Agent, host: str, port: int) -> ASGIApp:
    names = {"127.0.0.1", "localhost", "[::1]"} if _is_loopback(host) else {_url_host(host)}
    security = TransportSecuritySettings(
        allowed_hosts=[f"{name}:{port}" for name in sorted(names)],
        allowed_origins=[f"http://{name}:{port}" for name in sorted(names)],
    )
    app = make_server(agent).streamable_http_app(
        transport_security=security,
        host=host,
        max_request_body_size=MAX_BODY_BYTES,
        max_sessions=agent.max_sessions + SPARE,
    )
    return LimitSessions(app, agent.max_sessions)


def open_listener(host: str, port: int) -> socket.socket:
    """A listening socket with the protocol number of TCP. Raises: `invalid_input`.

    asyncio sets TCP_NODELAY only on such sockets (`base_events._set_nodelay`, Python 3.11). Without it each answer
    waits for the client's delayed acknowledgement: 44 ms instead of 2. A socket of `create_server` has protocol 0.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.socket(fileno=socket.create_server((host, port), family=family).detach())
    except OSError as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT, f"Cannot listen at {host}:{port}", details=error.strerror or str(error)
        ) from error


def _url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
