"""Lines of progress of a git command, passed to a function of a caller, which may stall or raise."""

from __future__ import annotations

import queue
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from sandbox.listener import ListenerThread

_PENDING_LINES = 64
_LAST_LINES_S = 1.0


class ProgressForwarder:
    """Passes lines to a listener from a separate thread. It drops them while the listener is too slow, and after it
    raised an error: a later line says more.

    Otherwise a listener that stalls (a paused terminal) or raises would stop the reading of git's stderr, and with a
    full pipe git itself, until its deadline.
    """

    def __init__(self, listener: Callable[[str], None]) -> None:
        self._thread = ListenerThread("progress", listener, _PENDING_LINES)

    def __enter__(self) -> Self:
        with suppress(RuntimeError):  # without a thread there is no progress
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.end(_LAST_LINES_S)

    def forward(self, line: str) -> None:
        """Queue a line for the listener. Never waits, never raises."""
        with suppress(queue.Full):
            self._thread.put(line)
