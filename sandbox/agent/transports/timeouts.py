"""Close connections on which no request arrives in time; uvicorn itself waits without a limit (slowloris).

A client without the token gets no further than the head of a request, so its body is not awaited after the answer. A
body that will be read has a longer deadline than a head. (uvicorn's own deadline between requests ends with the first
byte.)
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 30.0
"""How long the head of a request may take, from when the server waits for it."""

BODY_S = 120.0
"""How long its body may take after that: 16 MiB at 140 kB a second."""


class TimeoutProtocol(H11Protocol):
    """HTTP/1.1 with a deadline for each head and each body."""

    head_s = HEAD_S
    body_s = BODY_S
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Start the deadline of the first head."""
        super().connection_made(transport)
        self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadline."""
        super().connection_lost(exc)
        self._cancel_deadline()

    def on_response_complete(self) -> None:
        """Start the deadline of the next head."""
        super().on_response_complete()
        self._start_deadline()

    def _start_deadline(self) -> None:
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
