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

    `name`: of its thread, and in the log.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: queue.Queue[HomeEvent | None] = queue.Queue(WAITING_EVENTS)
        threading.Thread(target=self._work, name=name, daemon=True).start()

    @abstractmethod
    def wants(self, event: HomeEvent) -> bool:
        """Whether to hand it on; asked in the thread of all listeners, so it must not block."""

    @abstractmethod
    def hand_on(self, event: HomeEvent) -> None:
        """Hand on one event; failures are logged by the listener itself."""

    def __call__(self, event: HomeEvent | None) -> None:
        """Hand this event on soon; None: end."""
        if event is not None and not self.wants(event):
            return
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            _log.warning("the %s does not keep up: an event was dropped", self._name)

    def _work(self) -> None:
        while (event := self._queue.get()) is not None:
            self.hand_on(event)
