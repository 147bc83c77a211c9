"""Which registries answer: each host is asked through a proxy with the rules of a fetch. For `sandbox doctor`.

Only a TLS handshake is sent, or one HEAD for a plain registry.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sandbox.egress.connection_meter import EgressLimits
from sandbox.egress.destinations import AllowedHost, AllowList
from sandbox.egress.proxy import EgressProxy, Outside

DEADLINE_S = 3.0
"""For all hosts together: they are asked in parallel."""

_SOCKET_NAME = "egress.sock"
_MAX_HEAD_BYTES = 16 * 1024
_REFUSAL = re.compile(rb"HTTP/1\.1 403 egress_refused (\w+)\r\n")


OUTSIDE = Outside()


def ask_registries(
    hosts: Sequence[AllowedHost], ca_file: str, *, deadline_s: float = DEADLINE_S, outside: Outside = OUTSIDE
) -> Mapping[str, str]:
    """Ask each host of an allow list. Returns what is wrong with each, by `HOST:PORT`; '' if it answers.

    `ca_file`: the certificates that a fetch would trust. Raises: `OSError` if it cannot be read.
    """
    context = ssl.create_default_context(cafile=ca_file)
    limits = EgressLimits(duration_s=deadline_s, step_s=deadline_s, idle_s=deadline_s)
    with tempfile.TemporaryDirectory(prefix="sandbox-registries-") as folder:
        path = Path(folder) / _SOCKET_NAME
        with EgressProxy(path, AllowList(hosts), limits, None, outside), ThreadPoolExecutor(len(hosts) or 1) as pool:
            problems = pool.map(lambda host: _ask(path, host, context, deadline_s), hosts)
            return {str(host.destination): problem for host, problem in zip(hosts, problems, strict=True)}


def _ask(path: Path, host: AllowedHost, context: ssl.SSLContext, deadline_s: float) -> str:
    silent = f"no answer within {deadline_s:g} s"
    try:
        with _connect(path) as client:
            client.settimeout(deadline_s + 1)  # the proxy's own limit comes first
            if host.scheme == "http":
                head = _exchange(
                    client, f"HEAD http://{host.destination}/ HTTP/1.1\r\nHost: {host.destination}\r\n\r\n"
                )
                return _find_refusal(head) or ("" if head.startswith(b"HTTP/") else silent)
            head = _exchange(client, f"CONNECT {host.destination} HTTP/1.1\r\nHost: {host.destination}\r\n\r\n")
            if refusal := _find_refusal(head):
                return refusal
            with context.wrap_socket(client, server_hostname=host.destination.host):
                return ""
    except ssl.SSLCertVerificationError as error:
        return f"its certificate is not trusted: {error.verify_message}"
    except (ssl.SSLError, OSError):
        return silent


def _exchange(client: socket.socket, request: str) -> bytes:
    """Send a request; return the head of the answer, or what came of it."""
    client.sendall(request.encode())
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _MAX_HEAD_BYTES and (more := client.recv(4096)):
        head += more
    return head


def _find_refusal(head: bytes) -> str:
    found = _REFUSAL.match(head)
    return found[1].decode() if found else ""


def _connect(path: Path) -> socket.socket:
    """The address of a Unix socket holds 107 bytes, and a temporary folder may be deeper."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        client.connect(f"/proc/self/fd/{folder}/{path.name}")
    except BaseException:
        client.close()
        raise
    finally:
        os.close(folder)
    return client
