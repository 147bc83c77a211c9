"""Refuse requests that say twice how long they are, before any application sees them.

A request with `Content-Length` and `Transfer-Encoding` has two lengths (RFC 9112, 6.3). h11 uses the second. A proxy in
front that uses the first sees other requests than we, and what a stranger without the token sends could become the
beginning of the request of another client, with its token. So such a request is refused where it is read, whoever sent
it, and its connection is closed.
"""

from __future__ import annotations

import h11

_TWO_LENGTHS = frozenset({b"content-length", b"transfer-encoding"})


class OneLengthConnection(h11.Connection):
    """Takes a request with two lengths for one that is no HTTP."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """As in h11. Raises: `RemoteProtocolError`."""
        event = super().next_event()
        if isinstance(event, h11.Request) and {name for name, _ in event.headers} >= _TWO_LENGTHS:
            raise h11.RemoteProtocolError("a request with two lengths")
        return event
