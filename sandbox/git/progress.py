"""Lines of progress of a git command, passed to a caller whose function may stall or raise."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

_PENDING_LINES = 64
_LAST_LINES_S = 1.0

_log = logging.getLogger(__name__)


class ProgressForwarder:
    """Passes lines to a listener from a separate thread. It drops them while the listener is too slow, and after it
    raised an error: a later line says more.

    Otherwise a listener that stalls (a paused terminal) or raises would stop the reading of git's stderr, and with a
    full pipe git itself, until its deadline.
    """

    def __init__(self, listener: Callable[[str], None]) -> None:
        self._listener: Callable[[str], None] | None = listener
        self._pending: queue.Queue[str | None] = queue.Queue(_PENDING_LINES)
        self._thread = threading.Thread(target=self._run_listener, name="progress", daemon=True)

    def __enter__(self) -> Self:
        with suppress(RuntimeError):  # without a thread there is no progress
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ends_at = time.monotonic() + _LAST_LINES_S
        if self._thread.is_alive():
            with suppress(queue.Full):
                self._pending.put(None, timeout=_LAST_LINES_S)
                self._thread.join(timeout=max(0.0, ends_at - time.monotonic()))

    def forward(self, line: str) -> None:
        """Queue a line for the listener. Never waits, never raises."""
        with suppress(queue.Full):
            self._pending.put_nowait(line)

    def _run_listener(self) -> None:
        while (line := self._pending.get()) is not None:
            try:
                if self._listener is not None:
                    self._listener(line)
            except (OSError, ValueError):  # its stream is closed
                self._listener = None
            except Exception:  # noqa: BLE001 - the caller's code: its errors must not stop git
                _log.warning("the listener of git's progress failed and receives no more lines", exc_info=True)
                self._listener = None
