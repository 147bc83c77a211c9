"""A listener of events that takes its time: a thread and a queue of its own, so that it delays no other."""

from __future__ import annotations

import logging
import queue
import threading
from abc import ABC, abstractmethod

from sandbox.models import HomeEvent

WAITING_EVENTS = 1000
_log = logging.getLogger(__name__)


class QueuedListener(ABC):
    """Hands on the events that it wants, one after another. More than `WAITING_EVENTS` are dropped, which our log says.

    `name`: of its thread, and in the log. `end_s`: how long the end of the daemon waits for what is still queued. A
    subclass is complete before it calls this constructor: its thread begins here.
    """

    def __init__(self, name: str, end_s: float = 0.0) -> None:
        self._name, self._end_s = name, end_s
        self._queue: queue.Queue[HomeEvent | None] = queue.Queue(WAITING_EVENTS)
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @abstractmethod
    def wants(self, event: HomeEvent) -> bool:
        """Whether to hand it on; asked in the thread of all listeners, so it must not block."""

    @abstractmethod
    def hand_on(self, event: HomeEvent) -> None:
        """Hand on one event."""

    def end(self) -> None:  # noqa: B027 - most have no more to do
        """No more events come."""

    def __call__(self, event: HomeEvent | None) -> None:
        """Hand this event on soon; None: end."""
        if event is not None and not self.wants(event):
            return
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            _log.warning("the %s does not keep up: an event was dropped", self._name)
        if event is None:
            self._thread.join(self._end_s)

    def _work(self) -> None:
        while (event := self._queue.get()) is not None:
            try:
                self.hand_on(event)
            except Exception:  # noqa: BLE001 - the edge of a thread: the next event may succeed
                _log.exception("the %s failed for the event %s", self._name, event.id)
        self.end()
