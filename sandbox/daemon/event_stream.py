"""Events of the home for those who listen over HTTP (SSE), from one follower for all of them.

A listener that reads too slowly is disconnected. One that connects again with `Last-Event-ID`, as browsers do, first
gets what it missed from the journals, also after the daemon was replaced: some of it twice, with the same id.

Guest text is in the JSON of an event only, which has no line breaks, so it cannot begin another field or event of the
stream.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sandbox.agent.json_lines import write_line
from sandbox.models import HomeEvent
from sandbox.workbench import Workbench

Listener: TypeAlias = Callable[[HomeEvent | None], object]

WAITING_EVENTS = 1000
"""A listener with so many events that it has not read is disconnected."""

_MOST_MISSED = 1000
_START_S, _LOOK_S = 30.0, 0.5
_IDLE_S = 15.0
_MOST_LISTENERS = 100
_THREADS = 16
"""That listeners wait in. Those of persons' pages are others."""
_RETRY_S = 1.0
_log = logging.getLogger(__name__)


class EventHub:
    """Follows the journals of a home in a thread while there are listeners, and calls all of them with each event.

    A listener is called in that thread, and must not block; None says that it gets no more: the daemon ends, or events
    may have been missed, and it should ask for them.
    """

    def __init__(self, workbench: Workbench) -> None:
        self._workbench = workbench
        self._listeners: list[Listener] = []
        self._lock = threading.Lock()
        self._has_listeners = threading.Event()
        self._is_following = threading.Event()
        self._is_ending = threading.Event()
        self.threads = anyio.CapacityLimiter(_THREADS)
        self.readers = anyio.CapacityLimiter(1)
        """Of journals: to parse them needs memory, and each listener may ask for it."""
        threading.Thread(target=self._follow, name="events", daemon=True).start()

    def end(self) -> None:
        """Stop following, and tell the listeners."""
        self._is_ending.set()
        self._has_listeners.set()
        self._give(None)

    def add(self, listener: Listener) -> None:
        """Call it with each event, at once or after `wait_until_following`."""
        with self._lock:
            self._listeners.append(listener)
            self._has_listeners.set()

    def remove(self, listener: Listener) -> None:
        """Do not call it any more."""
        with self._lock:
            self._listeners.remove(listener)
            if not self._listeners:
                self._has_listeners.clear()

    def wait_until_following(self) -> None:
        """While there is a listener: until what happens from then on is given to it, or the hub ends."""
        until = time.monotonic() + _START_S
        while not self._is_following.wait(_LOOK_S) and not self._is_ending.is_set() and time.monotonic() < until:
            pass

    def list_missed(self, event_id: str) -> dict[str, str]:
        """What a listener may have missed since this event, and may not get now; of much the newest. By its id, as it
        is sent: a listener that does not read keeps no more than that.
        """
        return {event.id: format_event(event) for event in self._workbench.events_after(event_id, _MOST_MISSED)}

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another listener."""
        return len(self._listeners) >= _MOST_LISTENERS

    def _follow(self) -> None:
        logged = ""
        while self._has_listeners.wait() and not self._is_ending.is_set():
            try:
                self._follow_journals()
                logged = ""
            except Exception as error:  # noqa: BLE001 - the edge of a thread: such as too many open files for a while
                if logged != (logged := repr(error)):
                    _log.exception("The events cannot be followed; this is tried again")
                if self._is_following.is_set():
                    self._is_following.clear()
                    self._give(None)
                self._is_ending.wait(_RETRY_S)

    def _follow_journals(self) -> None:
        for event in self._workbench.follow_events():
            self._is_following.set()
            if event is not None:
                self._give(event)
            elif self._may_pause():
                break

    def _may_pause(self) -> bool:
        with self._lock:
            if not self._listeners:
                self._is_following.clear()
            return not self._listeners or self._is_ending.is_set()

    def _give(self, event: HomeEvent | None) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener(event)


def _put(queue: asyncio.Queue[HomeEvent | None], event: HomeEvent | None) -> None:
    if queue.qsize() >= WAITING_EVENTS:
        event = None  # too slow
    if not queue.full():
        queue.put_nowait(event)


def stream_events(hub: EventHub, request: Request) -> Response:
    """`GET /api/v1/events`; with the header `Last-Event-ID` first what came after that event."""
    if hub.is_full:
        return Response("Too many listeners.\n", 503, media_type="text/plain")
    last = request.headers.get("last-event-id", "")
    return StreamingResponse(_write(hub, last), media_type="text/event-stream", headers={"cache-control": "no-store"})


async def _write(hub: EventHub, last: str) -> AsyncIterator[str]:
    queue: asyncio.Queue[HomeEvent | None] = asyncio.Queue(WAITING_EVENTS + 1)
    loop = asyncio.get_running_loop()

    def listener(event: HomeEvent | None) -> None:
        loop.call_soon_threadsafe(_put, queue, event)

    hub.add(listener)
    try:
        await anyio.to_thread.run_sync(hub.wait_until_following, limiter=hub.threads)
        yield ": listening\n\n"
        missed = await anyio.to_thread.run_sync(hub.list_missed, last, limiter=hub.readers) if last else {}
        seen = set(missed)
        while missed:
            yield missed.pop(next(iter(missed)))
        while True:
            try:
                event = await asyncio.wait_for(queue.get(), _IDLE_S)
            except TimeoutError:
                yield ": idle\n\n"  # proxies close silent connections, and a closed one is noticed
                continue
            if event is None:
                return
            if event.id not in seen:
                yield format_event(event)
    finally:
        hub.remove(listener)


def format_event(event: HomeEvent) -> str:
    """One event of a stream. Its id and name are ours; JSON in ASCII holds no line break of any kind."""
    text = write_line(event)
    return f"id: {event.id}\nevent: {event.kind.value}\ndata: {text}\n\n"
