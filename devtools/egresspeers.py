"""TLS for both ends of an egress proxy, for its tests. The rest is in sandbox/attack/harness/egress_peers.py."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme

from sandbox.attack.harness.egress_peers import connect_request, connected, read_head, read_rest


class Certificates:
    """A CA, and server and client contexts that use it."""

    def __init__(self) -> None:
        self._ca = trustme.CA()

    def server(self, *names: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ca.issue_cert(*names).configure_cert(context)
        return context

    def ca_pem(self) -> bytes:
        """The certificate of the CA."""
        return self._ca.cert_pem.bytes()

    def client(self) -> ssl.SSLContext:
        """Without a check of the name: the attacker owns the client."""
        context = ssl.create_default_context()
        context.check_hostname = False
        self._ca.configure_trust(context)
        return context


def tunnel(
    path: Path, authority: str, server_name: str | None, client: ssl.SSLContext, message: bytes = b"hi"
) -> bytes:
    """Ask for a tunnel, speak TLS in it to `server_name`, send a message: the answer, or b"" when it was cut.

    Raises: `ConnectionError` with the first line of a refusal.
    """
    with connected(path) as plain:
        plain.sendall(connect_request(authority))
        head = read_head(plain)
        if not head.startswith(b"HTTP/1.1 200"):
            raise ConnectionError(head.partition(b"\r\n")[0].decode())
        try:
            with client.wrap_socket(plain, server_hostname=server_name) as secured:
                secured.sendall(message)
                return read_rest(secured)
        except (ssl.SSLError, OSError):
            return b""
