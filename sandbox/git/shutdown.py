"""Abort the network commands of one controller at shutdown, so that a silent remote cannot delay it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Ending:
    """A shutdown flag with callbacks that stop the running commands. Once set, new commands are stopped at once."""

    def __init__(self) -> None:
        self.came = False
        self._lock = threading.Lock()
        self._stops: list[Callable[[], None]] = []

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """Register `stop` while a command runs."""
        with self._lock:
            self._stops.append(stop)
            if self.came:
                stop()
        try:
            yield
        finally:
            with self._lock:
                self._stops.remove(stop)

    def come(self) -> None:
        """Stop all commands, now and in future."""
        with self._lock:
            self.came = True
            for stop in self._stops:
                stop()
