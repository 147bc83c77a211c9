"""Receivers of events: each goes on where it was, in the next daemon too."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Any, NoReturn

import pytest

from devtools.waiting import wait_until
from sandbox.daemon import receivers
from sandbox.daemon.receivers import FOLDER, Deliveries, EventReceiver
from sandbox.models import HomeEvent
from sandbox.store.lockfile import create_locked
from sandbox.workbench.controller.home_events import measure_journals, read_new_lines
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk

DEADLINE_S = 60
POLL_S = 0.01
TOO_FAR = 10**9


class Recorder(EventReceiver):
    """Notes each snapshot. `accepts`: what it answers; `waiting`: set while it waits to be let `go_on`."""

    def __init__(self, name: str = "recorder", *, accepts: bool = True) -> None:
        super().__init__(name)
        self.seen: Queue[str] = Queue()
        self.accepts, self.may_flush = accepts, True
        self.go_on, self.waiting = threading.Event(), threading.Event()
        self.go_on.set()

    def wants(self, event: HomeEvent) -> bool:
        return event.operation.operation == "snapshot"

    def hand_on(self, event: HomeEvent) -> bool:
        self.waiting.set()
        assert self.go_on.wait(DEADLINE_S)
        self.seen.put(event.id)
        if self.seen.qsize() == 1 and self.name == "failing":
            raise RuntimeError("the first")
        return self.accepts

    def flush(self) -> bool:
        return self.may_flush

    def next(self) -> str:
        return self.seen.get(timeout=DEADLINE_S)

    def expect_none(self) -> None:
        with pytest.raises(Empty):
            self.seen.get_nowait()


@contextmanager
def delivering(desk: Desk, *receivers: EventReceiver) -> Iterator[None]:
    """As a daemon; begun when each receiver has its places."""
    deliveries = Deliveries(desk.home, receivers, POLL_S)
    deliveries.start()
    try:
        for one in receivers:
            wait_until(places_of(desk, one.name).exists)
        yield
    finally:
        deliveries.end()
        deliveries.wait(DEADLINE_S)
        assert not any(thread.is_alive() for thread in deliveries._threads)


def places_of(desk: Desk, name: str) -> Path:
    return desk.home / "serve" / FOLDER / f"{name}.json"


def snapshot(desk: Desk) -> str:
    """Something that happens; returns the id of its event."""
    desk.workbench.snapshot(desk.task.id)
    return [event.id for event in desk.workbench.events() if event.operation.operation == "snapshot"][-1]


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Desk:
    return Desk(upstream, tmp_path / "sandbox-home")


def test_what_happens_between_two_daemons_is_delivered_by_the_second_once(desk: Desk) -> None:
    past = snapshot(desk)
    with delivering(desk, first := Recorder()):
        during = snapshot(desk)
        assert first.next() == during != past
    between = [snapshot(desk), snapshot(desk)]
    with delivering(desk, second := Recorder(), new := Recorder("new")):
        assert [second.next(), second.next()] == between
        last = snapshot(desk)
        assert (second.next(), new.next()) == (last, last), "who is named for the first time begins now"
    second.expect_none()


def test_what_was_not_handed_on_or_did_not_leave_the_process_comes_again(desk: Desk) -> None:
    with delivering(desk, cut_off := Recorder(accepts=False)):
        one = snapshot(desk)
        assert cut_off.next() == one
    kept = Recorder()
    kept.may_flush = False
    with delivering(desk, kept):
        assert kept.next() == one
    with delivering(desk, last := Recorder()):
        assert last.next() == one
    last.expect_none()


def test_the_old_program_finishes_before_the_new_one_delivers(desk: Desk) -> None:
    old, new = Recorder(), Recorder()
    with delivering(desk, old):
        old.go_on.clear()
        first = snapshot(desk)
        assert old.waiting.wait(DEADLINE_S)
        second = snapshot(desk)
        with delivering(desk, new):
            old.ending.set()
            new.waiting.wait(20 * POLL_S)
            assert not new.waiting.is_set(), "the old one holds the lock"
            old.go_on.set()
            assert (old.next(), new.next()) == (first, second)


def test_a_receiver_that_fails_or_is_slow_stops_neither_itself_nor_others(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    slow, failing = Recorder("slow"), Recorder("failing")
    slow.go_on.clear()
    with delivering(desk, slow, failing):
        events = [snapshot(desk), snapshot(desk)]
        assert [failing.next(), failing.next()] == events
        slow.go_on.set()
        assert [slow.next(), slow.next()] == events
    assert "failing failed for the event" in caplog.text


def test_a_receiver_that_does_not_answer_does_not_hold_the_end(desk: Desk) -> None:
    """Such as a collector. Control: without its limit the wait does not end before the receiver does."""
    silent = Recorder()
    silent.go_on.clear()
    deliveries = Deliveries(desk.home, [silent], POLL_S)
    deliveries.start()
    wait_until(places_of(desk, silent.name).exists)
    snapshot(desk)
    assert silent.waiting.wait(DEADLINE_S)
    deliveries.end()
    deliveries.wait(10 * POLL_S)
    assert any(thread.is_alive() for thread in deliveries._threads), "void: it has ended already"
    silent.go_on.set()
    deliveries.wait(DEADLINE_S)


def test_a_journal_that_was_replaced_and_damaged_places_repeat_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receivers, "_SAVE_S", 0.0)
    with delivering(desk, Recorder()):
        pass
    path = places_of(desk, "recorder")
    for damage in (json.dumps({desk.task.id: TOO_FAR}), "{", "[1]"):
        snapshot(desk)
        path.write_text(damage)
        with delivering(desk, found := Recorder()):
            wait_until(lambda: read_place(path, desk.task.id) not in {None, TOO_FAR})
            found.expect_none()
            assert snapshot(desk) == found.next(), "and it goes on"


def read_place(path: Path, journal: str) -> int | None:
    try:
        return int(json.loads(path.read_bytes())[journal])
    except (ValueError, TypeError):
        return None


def test_places_that_cannot_be_stored_stop_no_delivery(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_arguments: object, **_options: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with delivering(desk, found := Recorder()):
        with monkeypatch.context() as full:
            full.setattr(receivers, "write_atomically", refuse)
            full.setattr(receivers, "_SAVE_S", 0.0)
            lost = snapshot(desk)
            assert found.next() == lost
            wait_until(lambda: "the place of recorder cannot be stored" in caplog.text)
        assert snapshot(desk) == found.next()
        wait_until(lambda: (read_place(places_of(desk, "recorder"), desk.task.id) or 0) >= journal_size(desk))


def journal_size(desk: Desk) -> int:
    return (desk.home / f"repositories/journal/{desk.task.id}.jsonl").stat().st_size


def test_places_of_a_receiver_that_is_named_no_more_are_removed(desk: Desk) -> None:
    with delivering(desk, Recorder()):
        pass
    path = places_of(desk, "recorder")
    assert path.exists(), "the control"
    fd, written = create_locked(path)  # by the program before an upgrade
    abandoned = path.with_name(f".{path.name}.0123456789ab.tmp")
    abandoned.touch()
    Deliveries(desk.home, [])
    assert list(path.parent.iterdir()) == [written]
    os.close(fd)


def test_a_receiver_goes_on_after_too_many_files_were_open(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And forgets nothing. Control: the thread ends, or a place that cannot be read counts as none."""
    with delivering(desk, Recorder()):
        pass
    missed = snapshot(desk)
    refused: list[str] = []

    def refuse_once(what: str, do: Callable[..., object]) -> Callable[..., object]:
        def refuse_first(*arguments: object) -> object:
            if what not in refused:
                refused.append(what)
                raise OSError(errno.EMFILE, what)
            return do(*arguments)

        return refuse_first

    monkeypatch.setattr(receivers, "_RETRY_S", 0.0, raising=False)
    monkeypatch.setattr(receivers, "measure_journals", refuse_once("journals", measure_journals))
    monkeypatch.setattr(Path, "read_bytes", refuse_once("places", Path.read_bytes))
    with delivering(desk, found := Recorder()):
        assert found.next() == missed
    assert refused == ["journals", "places"]
    assert caplog.text.count("recorder gets no events") == len(refused)


def test_a_full_disk_is_tried_when_it_is_due_and_logged_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Control: at each look it was tried, and logged."""
    refused, looks = Queue[int](), Queue[int]()

    def refuse(*_arguments: object, **_options: object) -> NoReturn:
        refused.put(1)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def look(*arguments: Any) -> Iterator[Any]:
        looks.put(1)
        return read_new_lines(*arguments)

    def wait_for_looks() -> None:
        wanted = looks.qsize() + 4
        wait_until(lambda: looks.qsize() >= wanted)

    monkeypatch.setattr(receivers, "_SAVE_S", 1e6)
    monkeypatch.setattr(receivers, "read_new_lines", look)
    with delivering(desk, found := Recorder()), monkeypatch.context() as full:
        full.setattr(receivers, "write_atomically", refuse)
        assert snapshot(desk) == found.next()
        wait_for_looks()
        assert refused.empty(), "not due"
    with monkeypatch.context() as full:
        full.setattr(receivers, "_SAVE_S", 0.0)
        with delivering(desk, found := Recorder()):
            full.setattr(receivers, "write_atomically", refuse)
            assert snapshot(desk) == found.next()
            wait_until(lambda: refused.qsize() >= 4)
    assert caplog.text.count("cannot be stored") == 1
