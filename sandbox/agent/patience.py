"""Connections over which no request comes are closed; uvicorn itself waits for as long as the client likes (slowloris).

Whoever holds no token gets no further than the head of a request, so its head is what has a deadline.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 30.0
"""How long the head of a request may take, from when we wait for it."""


class PatientProtocol(H11Protocol):
    """HTTP/1.1 with a deadline for each head."""

    head_s = HEAD_S
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """A client has connected."""
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        super().connection_lost(exc)
        self._forget()

    def on_response_complete(self) -> None:
        """It may ask again."""
        super().on_response_complete()
        self._expect()

    def _expect(self) -> None:
        self._forget()
        self._deadline = self.loop.call_later(self.head_s, self._give_up)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    def _give_up(self) -> None:
        if self.conn.their_state is h11.IDLE:  # neither a body that comes nor an answer that is awaited
            self.transport.close()
