"""End what one controller does over the network: a remote that is silent keeps no server from ending."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Ending:
    """Knows how to stop the commands that run now; once it came, each new one is stopped as it begins."""

    def __init__(self) -> None:
        self.came = False
        self._lock = threading.Lock()
        self._stops: list[Callable[[], None]] = []

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """While a command runs."""
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
        """Stop all, for good."""
        with self._lock:
            self.came = True
            for stop in self._stops:
                stop()
