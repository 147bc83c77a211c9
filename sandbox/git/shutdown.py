"""Abort the network commands of one controller at shutdown, so that a silent remote cannot delay it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Shutdown:
    """A shutdown flag with callbacks that stop the running commands. Once set, new commands are stopped at once."""

    def __init__(self) -> None:
        self.is_set = False
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    @contextmanager
    def stop_on_shutdown(self, stop: Callable[[], None]) -> Iterator[None]:
        """Register `stop` while a command runs."""
        with self._lock:
            self._callbacks.append(stop)
            if self.is_set:
                stop()
        try:
            yield
        finally:
            with self._lock:
                self._callbacks.remove(stop)

    def set(self) -> None:
        """Stop all commands, now and in future."""
        with self._lock:
            self.is_set = True
            for stop in self._callbacks:
                stop()
