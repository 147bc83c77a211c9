"""Read the one request of a connection to the proxy: a CONNECT, or a plain GET or HEAD. Pure.

h11 parses the head strictly. A plain request is not passed on as it came: its head is written anew, so that no
second request, header or body can hide in it.
"""

from __future__ import annotations

from typing import Literal

import h11

from sandbox.egress.destinations import Destination, parse_authority, parse_plain_target
from sandbox.lazy_dataclass import dataclass

MAX_HEAD_BYTES = 16 * 1024
_PASSED_ON = frozenset(
    {b"accept", b"accept-encoding", b"cache-control", b"if-modified-since", b"if-none-match", b"range", b"user-agent"}
)


class BadRequest(ValueError):
    """A request that the proxy does not serve."""


@dataclass(frozen=True)
class ProxyRequest:
    """What a client asks for. `head`: the request to send to the host, empty for a CONNECT. `rest`: bytes after the
    request, which belong to the tunnel.
    """

    scheme: Literal["https", "http"]
    destination: Destination
    head: bytes = b""
    rest: bytes = b""


class RequestReader:
    """Collects the bytes of a request until its head is complete."""

    def __init__(self) -> None:
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)

    def feed(self, data: bytes) -> ProxyRequest | None:
        """Return the request once its head is complete. `data` is empty at the end of the stream.

        Raises: `BadRequest`.
        """
        try:
            self._parser.receive_data(data)
            event = self._parser.next_event()
            if event is h11.NEED_DATA:
                return None
            if not isinstance(event, h11.Request):
                raise BadRequest("no request")
            if event.method == b"CONNECT":
                return self._read_connect(event)
            return self._read_plain(event)
        except (h11.ProtocolError, UnicodeDecodeError, ValueError) as error:
            raise BadRequest(str(error)) from error

    def _read_connect(self, request: h11.Request) -> ProxyRequest:
        """A CONNECT has no body; two readers could differ about a length or coding, so both are refused."""
        _require_no_body(request)
        self._parser.next_event()  # EndOfMessage: what follows is the tunnel's
        return ProxyRequest(
            "https", parse_authority(request.target.decode("ascii")), rest=bytes(self._parser.trailing_data[0])
        )

    def _read_plain(self, request: h11.Request) -> ProxyRequest:
        if request.method not in {b"GET", b"HEAD"}:
            raise BadRequest("only CONNECT, GET and HEAD are served")
        _require_no_body(request)
        destination, path = parse_plain_target(request.target.decode("ascii"))
        headers = [(bytes(name), bytes(value)) for name, value in request.headers if name in _PASSED_ON]
        host = str(destination).removesuffix(":80").encode("ascii")
        head = h11.Request(
            method=request.method,
            target=path.encode("ascii"),
            headers=[(b"Host", host), *headers, (b"Connection", b"close")],
        )
        return ProxyRequest("http", destination, head=h11.Connection(h11.CLIENT).send(head) or b"")


def _require_no_body(request: h11.Request) -> None:
    for name, value in request.headers:
        if name == b"transfer-encoding" or (name == b"content-length" and value != b"0"):
            raise BadRequest("a request with a body")
