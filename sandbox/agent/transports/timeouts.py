"""Close connections on which no request arrives in time, and bound how many there are; uvicorn itself does neither.

A client without the token gets no further than the head of a request, so its body is not awaited after the answer. A
body that will be read has a longer deadline than a head. (uvicorn's own deadline between requests ends with the first
byte.)

Anyone who reaches the port may open connections. Each is a descriptor of the process that also carries out calls, so
without a bound a stranger takes all of them: then no file can be opened, and our own user is not answered. Of too many
connections the one that has waited longest for a request is closed. One is kept while a request that a guard has
admitted (`ADMITTED`) is answered, as long as its client reads. The request of a stranger does not keep a connection: a
body that never ends, or an answer that is not read, would hold it against all who have the token (S193).
"""

from __future__ import annotations

import asyncio
import socket

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from sandbox.agent.transports.one_length import OneLengthConnection

ADMITTED = "sandbox.admitted"
"""Key of a request's scope. A guard sets it, in the scope that the protocol made, when it knows who asks."""

HEAD_S = 30.0
"""How long the head of a request may take, from when the server waits for it."""

BODY_S = 120.0
"""How long its body may take after that: 16 MiB at 140 kB a second."""

WRITE_S = 60.0
"""How long a client over the network may read none of an answer that waits for it."""

MOST_CONNECTIONS = 256
"""Over the network, of one server: a quarter of the 1,024 descriptors that a process usually has."""

ACCEPTED_AT_ONCE = 64
"""Before their number is looked at again: the backlog of the listeners, which asyncio accepts in one go."""


class TimeoutProtocol(H11Protocol):
    """HTTP/1.1 with a deadline for each head, each body and each wait for a reader, and a bound on connections.

    A request has one length: see `OneLengthConnection`.
    """

    head_s = HEAD_S
    body_s = BODY_S
    write_s = WRITE_S
    most_connections = MOST_CONNECTIONS
    _deadline: asyncio.TimerHandle | None = None
    _write_deadline: asyncio.TimerHandle | None = None
    _is_network = False
    _waits_since_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Start the deadline of the first head, and make room if there are too many connections."""
        super().connection_made(transport)
        self.conn = OneLengthConnection(h11.SERVER)
        self._start_deadline()
        self._is_network = transport.get_extra_info("socket").family != socket.AF_UNIX
        if self._is_network:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadline."""
        super().connection_lost(exc)
        self._cancel_deadline()
        self._cancel_write_deadline()

    def on_response_complete(self) -> None:
        """Start the deadline of the next head."""
        super().on_response_complete()
        self._start_deadline()

    def pause_writing(self) -> None:
        """The client has not read what was sent: give it a deadline."""
        super().pause_writing()
        if self._is_network:
            self._start_write_deadline()

    def resume_writing(self) -> None:
        """The client reads."""
        super().resume_writing()
        self._cancel_write_deadline()

    def _start_write_deadline(self) -> None:
        self._cancel_write_deadline()
        unread = self.transport.get_write_buffer_size()
        self._write_deadline = self.loop.call_later(self.write_s, self._on_write_deadline, unread)

    def _on_write_deadline(self, unread: int) -> None:
        """`unread`: at the last look. A slow client reads on; writing is resumed only when nearly all of it is sent."""
        if self.transport.get_write_buffer_size() < unread:
            self._start_write_deadline()
        else:
            self.transport.abort()

    def _cancel_write_deadline(self) -> None:
        if self._write_deadline is not None:
            self._write_deadline.cancel()

    def _make_room(self) -> None:
        """Past the bound: close the connection that waits longest for a request that is admitted; this one if each is
        being answered one.
        """
        found = [one for one in self.connections if isinstance(one, TimeoutProtocol) and one._counts()]
        if len(found) > self.most_connections:
            waiting = [one for one in found if one is not self and not one._is_answering()]
            min(waiting, key=lambda one: one._waits_since_s, default=self).transport.abort()

    def _counts(self) -> bool:
        return self._is_network and not self.transport.is_closing()

    def _is_answering(self) -> bool:
        """Whether an admitted request waits for its answer, or for the end of its body."""
        return self.cycle is not None and not self.cycle.response_complete and ADMITTED in self.cycle.scope

    def _start_deadline(self) -> None:
        self._waits_since_s = self.loop.time()
        self._cancel_deadline()
        self._deadline = self.loop.call_later(self.head_s, self._on_head_deadline)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    def _on_head_deadline(self) -> None:
        if self.conn.their_state is h11.IDLE or self.conn.our_state is h11.DONE:  # DONE: answered before its body ended
            self.transport.close()
        elif self.conn.their_state is h11.SEND_BODY:
            self._deadline = self.loop.call_later(self.body_s, self._on_body_deadline)

    def _on_body_deadline(self) -> None:
        if self.conn.their_state is h11.SEND_BODY:  # a client that only waits for its answer has no deadline
            self.transport.close()
