"""A session with a guest's PID 1 over one attached connection: one thread, one poll loop, bounded waits.

The guest is an adversary, PID 1 is ours. A missing answer or report becomes None, and the caller ends the container:
no wait for a guest is unbounded.
"""

from __future__ import annotations

import math
import secrets
import select
import socket
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from sandbox.engine import pid1_messages
from sandbox.engine.beside import Beside, GuestControl
from sandbox.engine.container_types import StopCondition, Streams
from sandbox.engine.pid1_messages import (
    Alive,
    Busy,
    Command,
    Decoder,
    ExitReport,
    MalformedError,
    Message,
    OutputChunk,
    Posture,
)
from sandbox.lazy_dataclass import dataclass
from sandbox.models import Verdict

TICK_INTERVAL_S = 0.1
"""Longest time between two calls of the stop condition."""

ANSWER_TIMEOUT_S = 60.0
"""How long PID 1 may take for an answer: it has a guest's CPU share, on a host that may be busy."""

PING_INTERVAL_S = 2.0
"""How often PID 1 hears during a check that its controller is there: it ends the guest after a minute without a
frame, or after a longer lease (`Supervisor`)."""

GRACE_S = 15.0
"""How long a report may take after the deadline or after the kill request: PID 1 stops waiting for a process that
cannot be killed after ten seconds."""

LATE_S = 2.0
"""How long an overdue report may still take once the engine has answered."""

_PIECE = 256 * 1024
_PING_TOKEN = bytes(pid1_messages.NONCE_BYTES)  # never the nonce: under gVisor a check can read what PID 1 is sent
_OnTick = Callable[[], None]


@dataclass(frozen=True)
class SessionOutcome:
    """Result of a check. `report` None: no report arrived, and the guest must be removed.

    `stop_verdict`: why it was stopped. `overdue`: no report arrived within its deadline and `GRACE_S`.
    """

    report: ExitReport | None
    stop_verdict: Verdict | None = None
    overdue: bool = False


class Session:
    """One connection to PID 1. Owns the socket; for one thread only."""

    def __init__(self, channel: socket.socket, wait_for_engine: Callable[[], object] = lambda: None) -> None:
        """`wait_for_engine` returns when the engine answers: a slow engine alone can delay a report."""
        self._channel = channel
        self._wait_for_engine = wait_for_engine
        self._channel.setblocking(False)
        self._poll = select.poll()  # select(2) knows no descriptor above 1023
        self._poll.register(self._channel)
        self._decoder = Decoder()
        self._pending = bytearray()
        self._control: GuestControl | None = None
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def query_posture(self, within_s: float = ANSWER_TIMEOUT_S) -> Posture | None:
        """Request PID 1's `Posture`; None when it does not answer, or when another controller's check runs."""
        token = secrets.token_bytes(pid1_messages.NONCE_BYTES)
        self._send(pid1_messages.ping_frame(token) + pid1_messages.query_frame(token))
        ends_at = time.monotonic() + within_s
        while not self._ended and (left_s := ends_at - time.monotonic()) > 0:
            for message in self._exchange(left_s):
                if isinstance(message, Alive) and message.token == token and message.running:
                    return None
                if isinstance(message, Posture) and message.token == token:
                    return message
        return None

    def run(
        self,
        command: Command,
        streams: Streams,
        deadline_s: float,
        stop_condition: StopCondition,
        on_tick: _OnTick = lambda: None,
        beside: Beside | None = None,
    ) -> SessionOutcome:
        """Run one check until its report arrives. `on_tick` is called in every iteration of the loop. `beside`: what
        happens in the guest meanwhile; its end is the end of the check.

        Raises: ValueError for a command that does not fit a frame. Exceptions of streams and callbacks, and interrupts,
        pass through after the kill request was sent.
        """
        nonce = secrets.token_bytes(pid1_messages.NONCE_BYTES)
        ping = pid1_messages.ping_frame(_PING_TOKEN)  # at once: the lease counts also if we end before the next one
        self._send(pid1_messages.run_frame(nonce, command, deadline_s) + ping)
        if beside is not None:
            self._control = GuestControl(nonce, self._send)
            on_tick = _follow_both(on_tick, self._control, beside(self._control))
        try:
            return self._follow_check(nonce, streams, time.monotonic() + deadline_s, stop_condition, on_tick)
        except BaseException:
            self._send(pid1_messages.kill_frame(nonce))
            self._flush()
            raise

    def _follow_check(
        self,
        nonce: bytes,
        streams: Streams,
        deadline: float,
        stop_condition: StopCondition,
        on_tick: _OnTick,
        *,
        late: bool = False,
    ) -> SessionOutcome:
        stopped: Verdict | None = None
        ends_at = deadline + GRACE_S
        asked_at, pinged_at = -math.inf, time.monotonic()
        while not self._ended and (now := time.monotonic()) < ends_at:
            on_tick()
            if now - pinged_at >= PING_INTERVAL_S and not self._pending:
                pinged_at = now
                self._send(pid1_messages.ping_frame(_PING_TOKEN))
            if stopped is None and now - asked_at >= TICK_INTERVAL_S:
                asked_at = now
                if (stopped := stop_condition()) is not None:
                    self._send(pid1_messages.kill_frame(nonce))
                    ends_at = min(ends_at, now + GRACE_S)
            for message in self._exchange(TICK_INTERVAL_S):
                if isinstance(message, Busy) and message.nonce == nonce:
                    return SessionOutcome(None, stopped)
                if isinstance(message, ExitReport) and message.nonce == nonce:
                    return SessionOutcome(message, stopped)
                _forward_output(message, nonce, streams)
                if self._control is not None:
                    self._control.receive(message)
        if late or self._ended or stopped is not None:
            return SessionOutcome(None, stopped, overdue=not self._ended and stopped is None)
        # All messages of PID 1 pass through the engine: a slow engine may have delayed the report.
        self._wait_for_engine()
        return self._follow_check(
            nonce, streams, time.monotonic() - GRACE_S + LATE_S, stop_condition, on_tick, late=True
        )

    def _send(self, data: bytes) -> None:
        """Queue data without waiting: the deadline of the answer detects a guest that does not read."""
        self._pending += data

    def _exchange(self, wait_s: float) -> Iterator[Message]:
        """Wait for at most this long; send pending data and yield received messages."""
        self._poll.modify(self._channel, select.POLLIN | (select.POLLOUT if self._pending else 0))
        events = self._poll.poll(max(1.0, wait_s * 1000))
        ready = events[0][1] if events else 0
        if ready & select.POLLOUT:
            self._flush()
        if ready & ~select.POLLOUT:
            yield from self._receive()

    def _flush(self) -> None:
        try:
            del self._pending[: self._channel.send(self._pending)]
        except BlockingIOError:
            pass
        except OSError:
            self._ended = True

    def _receive(self) -> Iterator[Message]:
        try:
            data = self._channel.recv(_PIECE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._ended = True
            return
        try:
            yield from self._decoder.feed(data)
        except MalformedError:
            self._ended = True


def _follow_both(on_tick: _OnTick, control: GuestControl, script: Iterator[None]) -> _OnTick:
    """A tick that also takes the next step of a script; the check is killed when the script has ended."""

    def tick() -> None:
        on_tick()
        if not control.ended and next(script, _OVER) is _OVER:
            control.end()

    return tick


_OVER = object()


def _forward_output(message: Message, nonce: bytes, streams: Streams) -> None:
    """Forward the output of this check; output of another check, of a controller that has ended, is dropped."""
    if isinstance(message, OutputChunk) and message.nonce == nonce:
        (streams.stdout if message.stream == pid1_messages.STDOUT else streams.stderr)(message.data)
