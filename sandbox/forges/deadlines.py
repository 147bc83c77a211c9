"""HTTP connections with one deadline for the whole answer, headers included.

A socket timeout limits one read only. The headers of an answer take many reads: a server that sends a byte now and
then, or `100 Continue` without end, could block us before there is a response.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from collections.abc import Mapping
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection


class _DeadlineReader(io.RawIOBase):
    """Reads from a socket until a deadline. Raises: `TimeoutError`."""

    def __init__(self, received: io.BufferedReader, sock: socket.socket, deadline: float) -> None:
        super().__init__()
        self._received, self._sock, self._deadline = received, sock, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left_s)
        return self._received.readinto1(buffer)

    def close(self) -> None:
        self._received.close()
        super().close()


class _DeadlineResponse(http.client.HTTPResponse):
    """Uses the socket's timeout, as set when the request was sent, for the whole answer."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        if (timeout_s := sock.gettimeout()) is not None:
            self.fp = io.BufferedReader(_DeadlineReader(self.fp, sock, time.monotonic() + timeout_s))


class _DeadlineHttpConnection(HTTPConnection):
    response_class = _DeadlineResponse


class _DeadlineHttpsConnection(HTTPSConnection):
    response_class = _DeadlineResponse


CONNECTION_CLASSES: Mapping[str, type[HTTPConnection]] = {
    "http": _DeadlineHttpConnection,
    "https": _DeadlineHttpsConnection,
}
"""Connection classes by the scheme of their pool."""


class DeadlineAdapter(HTTPAdapter):
    """The timeout of a request is the deadline of its whole answer."""

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*args, **kwargs)
        pool.ConnectionCls = self.find_connection_class(pool.scheme)
        return pool

    def find_connection_class(self, scheme: str) -> type[HTTPConnection]:
        """The class of connections of a scheme."""
        return CONNECTION_CLASSES[scheme]
