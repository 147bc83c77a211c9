"""A caller's function that is called while something of ours runs. It may raise, or stall (a paused terminal)."""

from __future__ import annotations

import errno
import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, ParamSpec, TypeVar

_CLOSED = {errno.EPIPE, errno.ESHUTDOWN, errno.ECONNRESET, errno.ECONNABORTED, errno.EBADF}
_log = logging.getLogger(__name__)
ItemT = TypeVar("ItemT")
ArgumentsT = ParamSpec("ArgumentsT")


def is_closed_stream(error: BaseException) -> bool:
    """Whether a listener failed because the stream that it writes to is closed, as by `| head`. It then needs no more,
    and it is no defect. Python has no type for a file that it closed itself: ValueError, "... closed file". Pure.
    """
    if isinstance(error, OSError):
        return error.errno in _CLOSED
    return isinstance(error, ValueError) and "closed file" in str(error)


class OneAtATime(Generic[ArgumentsT]):
    """Calls a listener from one thread at a time: one that stalls may still be at work when the next one calls."""

    def __init__(self, listener: Callable[ArgumentsT, None]) -> None:
        self._listener = listener
        self._lock = threading.RLock()

    def __call__(self, *arguments: ArgumentsT.args, **named: ArgumentsT.kwargs) -> None:
        with self._lock:
            self._listener(*arguments, **named)


class HeldListener(Generic[ArgumentsT]):
    """Calls a listener. Its error ends no work of ours (THREATS L08): it is logged and held, and the listener is called
    no more. That of a closed stream, as of `| head`, is neither.
    """

    def __init__(self, listener: Callable[ArgumentsT, None], name: str) -> None:
        self.error: Exception | None = None
        self._listener: Callable[ArgumentsT, None] | None = listener
        self._name = name

    def __call__(self, *arguments: ArgumentsT.args, **named: ArgumentsT.kwargs) -> None:
        """Never raises."""
        try:
            if self._listener is not None:
                self._listener(*arguments, **named)
        except Exception as error:  # noqa: BLE001 - the caller's code
            self._listener = None
            if not is_closed_stream(error):
                _log.warning("the listener '%s' failed and is called no more", self._name, exc_info=True)
                self.error = error


class ListenerThread(Generic[ItemT]):
    """Passes items to a listener, through a queue of `size`. After an error the listener is called no more.

    The thread ends when it has passed on what is queued at the end, also if the listener goes on only after that.
    """

    def __init__(self, name: str, listener: Callable[[ItemT], None], size: int) -> None:
        self._listener = HeldListener(listener, name)
        self._pending: queue.Queue[ItemT | None] = queue.Queue(size)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Raises: RuntimeError on a host without a thread for it."""
        self._thread.start()

    def put(self, item: ItemT, timeout_s: float = 0) -> None:
        """Queue an item. Raises: queue.Full."""
        self._pending.put(item, block=timeout_s > 0, timeout=timeout_s)

    def end(self, timeout_s: float) -> None:
        """Wait until the listener has all items, for at most `timeout_s`. Never raises."""
        ends_at = time.monotonic() + timeout_s
        self._ended.set()
        with suppress(queue.Full):  # then the thread does not wait for an item, and sees the flag
            self._pending.put_nowait(None)
        if self._thread.is_alive():
            self._thread.join(max(0.0, ends_at - time.monotonic()))

    def _run(self) -> None:
        while (item := self._next()) is not None:
            self._listener(item)

    def _next(self) -> ItemT | None:
        if not self._ended.is_set():
            return self._pending.get()
        with suppress(queue.Empty):
            return self._pending.get_nowait()
        return None
