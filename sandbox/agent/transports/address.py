"""Where a server listens over TCP, what its clients call it, and their token."""

from __future__ import annotations

import errno
import ipaddress
import socket
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.remotes import is_loopback

TOKEN_FILE = "mcp-token"  # noqa: S105 - the name of a file


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT` or `[HOST]:PORT`. Raises: `invalid_input`."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or "/" in host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"{address[:100]!r} is not an address",
            hint="Use HOST:PORT, for example 127.0.0.1:8765; port 0 takes a free port.",
        )
    return host, int(port)


def require_loopback(host: str, token_file: Path | None) -> None:
    """Raises: `invalid_input` for an address that other machines can reach, without a token that was chosen for it;
    for one that stands for all of this host, because requests must name the address that is served.
    """
    if not is_loopback(host) and token_file is None:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"{host} can be reached from other machines",
            hint="Use 127.0.0.1, or give the file with the clients' token by --token-file; put a TLS proxy in front.",
        )
    if _stands_for_all(host):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"{host} stands for every address of this host, and no client asks for a server of that name",
            hint="Give the address or the name that clients use: requests that name another one are refused.",
        )


def _stands_for_all(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return _is_zero(host)


def _is_zero(host: str) -> bool:
    """Whether it is 0.0.0.0 as the C library reads numbers: `0`, `0x0`."""
    try:
        return not any(socket.inet_aton(host))
    except OSError:
        return False


def list_authorities(host: str, port: int) -> list[str]:
    """What a request may name as its host, with the port."""
    names = {"127.0.0.1", "localhost", "[::1]"} if is_loopback(host) else {_url_host(host)}
    return [f"{name}:{port}" for name in sorted(names)]


def open_listener(host: str, port: int) -> socket.socket:
    """A listening socket with the protocol number of TCP. Raises: `invalid_input`.

    asyncio sets TCP_NODELAY only on such sockets (`base_events._set_nodelay`, Python 3.11). Without it each answer
    waits for the client's delayed acknowledgement: 44 ms instead of 2. A socket of `create_server` has protocol 0.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.socket(fileno=socket.create_server((host, port), family=family).detach())
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"Cannot listen at {host}:{port}",
            details=error.strerror or str(error),
            hint="Another program listens there. Use another port; with port 0 a free one is chosen." if in_use else "",
        ) from error


def make_url(host: str, port: int) -> str:
    """The address of a server, without a path."""
    return f"http://{_url_host(host)}:{port}"


def _url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
