"""Receivers of events: each reads the journals of the home itself, in a thread of its own, from where it was.

Theory. An event has arrived when its receiver has said so; until then its place in the journal is not stored. So what
happens while no daemon runs, while one is replaced, and what one did not deliver before it ended or was killed, is
delivered by the next one, and some of it twice: an event has the same id each time. A receiver that is slow or away
delays no other and costs no memory: what waits for it is in the journals.

The programs before and after an upgrade run at the same time for a while. The lock of a receiver's places is held by
the one that delivers; the other waits for it.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sandbox.daemon.place import folder_of
from sandbox.models import HomeEvent
from sandbox.private_folders import make_private
from sandbox.store.home import Home, write_json
from sandbox.store.lockfile import remove_abandoned
from sandbox.workbench.controller.home_events import POLL_S, JournalLine, measure_journals, read_new_lines

FOLDER = "receivers"
_SAVE_S = 1.0
_PLACES = "places"
_RETRY_S = 5.0
_log = logging.getLogger(__name__)


class EventReceiver(ABC):
    """Where events are sent. `name`: of its file, the same for each daemon with the same settings; and in the log.

    `ending` is set when the daemon ends: `hand_on` then returns soon.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.ending = threading.Event()

    @abstractmethod
    def wants(self, event: HomeEvent) -> bool:
        """Whether to hand it on."""

    @abstractmethod
    def hand_on(self, event: HomeEvent) -> bool:
        """Hand on one event, or give it up. False: neither, because the daemon ends; the next one hands it on."""

    def flush(self) -> bool:
        """Whether all that was handed on has left this process."""
        return True

    def end(self) -> None:  # noqa: B027 - most have no more to do
        """No more events come."""


class Deliveries:
    """Gives each receiver the events of a home, in threads, from `start` until `end`."""

    def __init__(self, home: Path, receivers: Sequence[EventReceiver], poll_s: float = POLL_S) -> None:
        self._receivers, self._poll_s = receivers, poll_s
        self._home, self._folder = Home(home), folder_of(home) / FOLDER
        if receivers:
            make_private(self._folder)
        self._forget_others()
        self._threads = [
            threading.Thread(target=self._deliver, args=(one,), name=one.name, daemon=True) for one in receivers
        ]

    def start(self) -> None:
        """Begin. The signals that end the daemon must be handled: else an event may come again that was accepted."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Deliver no more; does not wait."""
        for receiver in self._receivers:
            receiver.ending.set()

    def wait(self, seconds: float) -> None:
        """Wait for what is being delivered, so long for all together."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _forget_others(self) -> None:
        """A receiver that is named again after some time begins anew. The program before us may be writing its own."""
        if self._folder.is_dir():
            known = {f"{one.name}.{kind}" for one in self._receivers for kind in ("json", "lock")}
            for path in self._folder.iterdir():
                if path.name.startswith("."):
                    remove_abandoned(path)
                elif path.name not in known:
                    path.unlink(missing_ok=True)

    def _deliver(self, receiver: EventReceiver) -> None:
        logged = ""
        while not receiver.ending.is_set():
            try:
                self._deliver_until_end(receiver)
                break
            except Exception as error:  # noqa: BLE001 - the edge of a thread: such as too many open files for a while
                if logged != (logged := repr(error)):
                    _log.exception("%s gets no events; this is tried again", receiver.name)
                receiver.ending.wait(_RETRY_S)
        receiver.end()

    def _deliver_until_end(self, receiver: EventReceiver) -> None:
        with self._locked(receiver) as has_lock:
            if has_lock:
                _Sender(self._home, self._folder / f"{receiver.name}.json", receiver).run(self._poll_s)

    @contextmanager
    def _locked(self, receiver: EventReceiver) -> Iterator[bool]:
        """Yields whether we have the lock; else the daemon ends."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self._folder / f"{receiver.name}.lock", flags, 0o600)
        try:
            while not (has_lock := _try_lock(fd)) and not receiver.ending.wait(self._poll_s):
                pass
            yield has_lock
        finally:
            os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _Sender:
    """One receiver; we hold its lock. `path`: of its places, by journal."""

    def __init__(self, home: Home, path: Path, receiver: EventReceiver) -> None:
        self._home, self._path, self._receiver = home, path, receiver
        self._places = self._load()
        self._is_saved, self._save_due, self._logged = False, 0.0, ""

    def run(self, poll_s: float) -> None:
        """Until the daemon ends."""
        self._save()
        while self._look():
            self._save_if_due()
            if self._receiver.ending.wait(poll_s):
                break
        self._save()

    def _look(self) -> bool:
        """Hand on what is new. False: the daemon ends."""
        for line in read_new_lines(self._home, self._places):
            if self._receiver.ending.is_set() or not self._hand_on(line):
                return False
            self._places[line.journal] = line.end
            self._is_saved = False
            self._save_if_due()
        return True

    def _hand_on(self, line: JournalLine) -> bool:
        event = line.event
        if event is None or not self._receiver.wants(event):
            return True
        try:
            return self._receiver.hand_on(event)
        except Exception:  # noqa: BLE001 - the next event may succeed
            _log.exception("%s failed for the event %s", self._receiver.name, event.id)
            return True

    def _load(self) -> dict[str, int]:
        """Where it was; for a new receiver, and after a damaged file, where the journals end now. Raises: `OSError`."""
        sizes = measure_journals(self._home)
        try:
            document = json.loads(self._path.read_bytes())
            found = document.get(_PLACES, document)  # of an older version: the places alone
            return {name: int(place) for name, place in found.items() if name in sizes}
        except (FileNotFoundError, ValueError, TypeError, AttributeError, RecursionError):
            return sizes

    def _save_if_due(self) -> None:
        if time.monotonic() > self._save_due:
            self._save()

    def _save(self) -> None:
        if self._is_saved or not self._receiver.flush():
            return
        try:
            write_json(self._path, {_PLACES: self._places}, synced=False)
            self._is_saved, self._logged = True, ""
        except OSError as error:  # a full disk: events still go on, and the next daemon may repeat them
            if self._logged != (reason := str(error.strerror)):
                self._logged = reason
                _log.warning("the place of %s cannot be stored: %s", self._receiver.name, reason)
        self._save_due = time.monotonic() + _SAVE_S
