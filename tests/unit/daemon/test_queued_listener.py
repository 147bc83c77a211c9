"""A listener of events with a thread of its own."""

from __future__ import annotations

import threading

import pytest

from sandbox.daemon import queued_listener
from sandbox.daemon.queued_listener import QueuedListener
from sandbox.models import HomeEvent, HomeEventKind
from tests.unit.daemon.event_receiver import make_event


class Listener(QueuedListener):
    """Fails at its first event, and waits at each until it may go on."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.may_go_on, self.ended = threading.Event(), threading.Event()
        super().__init__("test listener", 60.0)

    def wants(self, event: HomeEvent) -> bool:
        return event.kind is HomeEventKind.PUSH

    def hand_on(self, event: HomeEvent) -> None:
        self.seen.append(event.id)
        self.may_go_on.wait(60)
        if len(self.seen) == 1:
            raise RuntimeError("the first")

    def end(self) -> None:
        self.ended.set()


def test_an_event_that_fails_does_not_stop_the_next_and_the_end_waits(caplog: pytest.LogCaptureFixture) -> None:
    listener = Listener()
    for kind, number in ((HomeEventKind.PUSH, 1), (HomeEventKind.TASK, 2), (HomeEventKind.PUSH, 3)):
        listener(make_event(kind, number))
    listener.may_go_on.set()
    listener(None)
    assert listener.seen == ["home/1", "home/3"]
    assert listener.ended.is_set()
    assert "the test listener failed for the event home/1" in caplog.text


def test_a_listener_that_does_not_keep_up_delays_nobody_and_drops(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(queued_listener, "WAITING_EVENTS", 2)
    listener = Listener()
    for number in range(1, 6):
        listener(make_event(HomeEventKind.PUSH, number))
    assert "the test listener does not keep up" in caplog.text
    listener.may_go_on.set()
    listener._thread.join(0.5)
    listener(None)
    assert 2 <= len(listener.seen) < 5
