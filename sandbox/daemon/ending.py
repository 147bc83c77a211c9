"""How the daemon's HTTP process ends, before and after it serves."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Protocol

from sandbox.daemon.parent_death import outlive_parent
from sandbox.daemon.receivers import Deliveries
from sandbox.daemon.served_home import HttpSockets
from sandbox.daemon.upgrade import Upgrade

_UPGRADE_S = 1.0
"""How often the daemon is asked again to start the newer program, which may not have been possible."""


class Server(Protocol):
    """What serves HTTP. Both are called by a signal handler."""

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Accept no more requests, and end when the calls are answered if this process drains, else soon."""

    def cut_off(self) -> None:
        """Wait no more for calls to be answered."""


class Ending:
    """How this process ends: at once, or, when a newer program has taken over, without stopping what it does."""

    def __init__(self, end_network: Callable[[], None], deliveries: Deliveries) -> None:
        self._end_network, self._deliveries = end_network, deliveries
        self.is_draining = False
        self.begun = threading.Event()
        self._signal: tuple[int, FrameType | None] | None = None
        self._server: Server | None = None
        self._wakeup, self._wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def drain(self, number: int, frame: FrameType | None) -> None:
        """A signal handler."""
        outlive_parent()
        self.is_draining = True
        self._stop(number, frame)

    def end_now(self, number: int, frame: FrameType | None) -> None:
        """A signal handler: a signal that asks to end ends the wait for calls, too."""
        self.is_draining = False
        if self._server is not None:
            self._server.cut_off()
        self._stop(number, frame)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._signal = number, frame
        with suppress(BlockingIOError):
            os.write(self._wakes, b"\0")
        if self._server is not None:
            self._server.stop(number, frame)

    def wait_for_client(self, sockets: HttpSockets, upgrade: Upgrade) -> bool:
        """Wait until a client connects; False: a signal came first.

        After an upgrade the client waits for the newer program. The daemon ends this process when it starts that. If it
        cannot be started, this one serves after all.

        The kernel may give a signal to another thread. Python's handler runs in this one, which has to be woken.
        """
        clients = [one.fileno() for one in sockets.list_open()]
        before = signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        try:
            while True:
                ready, _, _ = select.select([self._wakeup, *clients], [], [])
                self._drain_wakeups()
                if self._signal is not None:
                    return False
                if ready == [self._wakeup]:
                    continue
                if not upgrade.is_awaited():
                    return True
                select.select([self._wakeup], [], [], _UPGRADE_S)
        finally:
            signal.set_wakeup_fd(before)

    def _drain_wakeups(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._wakeup, 4096)

    def attach(self, server: Server) -> None:
        """Stop this server at the next signal; at once if one came before."""
        self._server = server
        if self._signal is not None:
            server.stop(*self._signal)

    def end_network(self) -> None:
        """End what uses the network, unless it may go on."""
        if not self.is_draining:
            self._end_network()

    def begin(self) -> None:
        """No more requests are accepted: end what serves no client. May be called again."""
        self.begun.set()
        self._deliveries.end()
        self.end_network()
