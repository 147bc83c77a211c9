"""The follower of events for those who listen over HTTP."""

from __future__ import annotations

import errno
import threading
from collections.abc import AsyncGenerator, Iterator
from queue import Queue
from typing import cast

import anyio
import anyio.to_thread
import pytest

from sandbox.daemon import event_stream
from sandbox.daemon.event_stream import EventHub
from sandbox.models import HomeEvent, HomeEventKind
from sandbox.workbench import Workbench
from tests.unit.daemon.event_receiver import make_event

DEADLINE_S = 60
EVENT = make_event(HomeEventKind.PUSH, 1)


class Faulty:
    """Events of a home that has too many open files: at first, and once while it is followed."""

    def __init__(self) -> None:
        self.looks = 0

    def follow_events(self) -> Iterator[HomeEvent | None]:
        self.looks += 1
        if self.looks == 1:
            raise OSError(errno.EMFILE, "at first")
        yield None
        if self.looks == 2:
            raise OSError(errno.EMFILE, "meanwhile")
        while True:
            yield EVENT
            yield None


def test_events_are_followed_again_after_too_many_files_were_open(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who may have missed some is told so. Control: the thread ends with the first error."""
    monkeypatch.setattr(event_stream, "_RETRY_S", 0.0, raising=False)
    hub, got = EventHub(cast("Workbench", Faulty())), Queue[HomeEvent | None]()
    hub.add(got.put)
    try:
        assert [got.get(timeout=DEADLINE_S), got.get(timeout=DEADLINE_S)] == [None, EVENT]
    finally:
        hub.remove(got.put)
        hub.end()
    assert caplog.text.count("cannot be followed") == 2


class Waiting:
    """A home whose events cannot be followed yet, and whose journals are read for long."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def follow_events(self) -> Iterator[HomeEvent | None]:
        self.release.wait(DEADLINE_S)
        yield None


async def read_first(stream: AsyncGenerator[str, None]) -> None:
    await anext(stream)


def test_s165_listeners_that_wait_take_no_threads_of_persons() -> None:
    """The pages of persons are made in the default threads."""
    home = Waiting()
    hub = EventHub(cast("Workbench", home))
    default = anyio.to_thread.current_default_thread_limiter

    async def listen() -> None:
        with anyio.fail_after(DEADLINE_S):
            streams = [cast("AsyncGenerator[str, None]", event_stream._write(hub, "")) for _ in range(4)]
            async with anyio.create_task_group() as group:
                for stream in streams:
                    group.start_soon(read_first, stream)
                while hub.threads.borrowed_tokens < 4:
                    await anyio.sleep(0.01)
                assert default().borrowed_tokens == 0
                home.release.set()
            for stream in streams:
                await stream.aclose()

    try:
        anyio.run(listen)
    finally:
        hub.end()
