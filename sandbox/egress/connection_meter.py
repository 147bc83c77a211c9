"""Limits of one fetch, and the count of what its connections used. Single-threaded: of the proxy's event loop."""

from __future__ import annotations

import time
from collections.abc import Callable

from sandbox.egress.destinations import Destination
from sandbox.lazy_dataclass import dataclass
from sandbox.models.egress import EgressAccess, EgressRefusal

MAX_RECORDS = 1000
"""Of connections with a record of their own; the rest is only counted."""


@dataclass(frozen=True)
class EgressLimits:
    """Limits of one fetch. A connection that reaches one is cut, and the reason is recorded.

    `connections`: in all, refused ones too. `open_connections`: at the same time. `sent_bytes`, `received_bytes`: of
    all connections together. `duration_s`: from the start of the proxy. `idle_s`: without a byte in either direction.
    `step_s`: for each step before the first byte is passed on: the request, the look-up, the connection, the
    ClientHello.
    """

    connections: int = 5_000
    open_connections: int = 64
    sent_bytes: int = 32 * 1024**2
    received_bytes: int = 4 * 1024**3
    duration_s: float = 3600.0
    idle_s: float = 120.0
    step_s: float = 30.0


@dataclass
class Connection:
    """What is known of one connection so far."""

    started_at: float
    destination: Destination | None = None
    sent_bytes: int = 0
    received_bytes: int = 0
    active_at: float = 0.0
    is_open: bool = False  # the client was answered that its tunnel is open
    refused: EgressRefusal | None = None


class Refused(Exception):
    """This connection may not go on."""

    def __init__(self, why: EgressRefusal) -> None:
        super().__init__(why.value)
        self.why = why


class ConnectionMeter:
    """Counts connections and bytes of one fetch against its limits, and keeps a record of each connection."""

    def __init__(self, limits: EgressLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.accesses: list[EgressAccess] = []
        self.unrecorded = 0
        self._clock = clock
        self._started_at = clock()
        self._connections = self._open = self._sent = self._received = 0

    @property
    def left_s(self) -> float:
        """Seconds until the fetch is over."""
        return max(0.0, self._started_at + self.limits.duration_s - self._clock())

    def begin(self) -> Connection:
        """Note a new connection; `end` must follow. It is refused already when there are too many."""
        self._connections += 1
        self._open += 1
        too_many = self._connections > self.limits.connections or self._open > self.limits.open_connections
        why = EgressRefusal.TOO_MANY_CONNECTIONS if too_many else None
        return Connection(self._clock(), active_at=self._clock(), refused=why)

    @property
    def is_exhausted(self) -> bool:
        """Whether no more connections are allowed."""
        return self._connections >= self.limits.connections

    def count(self, connection: Connection, *, sent: int = 0, received: int = 0) -> None:
        """Count bytes that are about to be passed on. Raises: `Refused` if they are too many; pass none of them on."""
        if self._sent + sent > self.limits.sent_bytes or self._received + received > self.limits.received_bytes:
            raise Refused(EgressRefusal.TOO_MANY_BYTES)
        self._sent += sent
        self._received += received
        connection.sent_bytes += sent
        connection.received_bytes += received
        connection.active_at = self._clock()

    def idle_left_s(self, connection: Connection) -> float:
        """Seconds until the connection is idle for too long; 0 or less: it is."""
        return connection.active_at + self.limits.idle_s - self._clock()

    def end(self, connection: Connection) -> None:
        """Note the end of a connection, and record it."""
        self._open -= 1
        if len(self.accesses) >= MAX_RECORDS:
            self.unrecorded += 1
            return
        asked = connection.destination
        self.accesses.append(
            EgressAccess(
                host=asked.host if asked else "",
                port=asked.port if asked else 0,
                sent_bytes=connection.sent_bytes,
                received_bytes=connection.received_bytes,
                duration_s=round(self._clock() - connection.started_at, 3),
                refused=connection.refused,
            )
        )
