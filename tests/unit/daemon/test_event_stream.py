"""The follower of events for those who listen over HTTP."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from queue import Queue
from typing import cast

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
