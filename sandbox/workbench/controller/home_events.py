"""Use-case: follow what happens in a home, in any process.

Theory. Every controller writes each operation into a journal, a file that only grows. A follower remembers how long
each was and reads what came since. So it needs no connection to those who work, and it misses no event of one that is
killed: an operation that is not in a journal has not ended.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from heapq import nlargest
from pathlib import Path

from sandbox.models import HomeEvent, HomeEventKind, JournalEntry
from sandbox.store.home import Home
from sandbox.store.journal import HOME_JOURNAL, parse_entry, read_last_entries

POLL_S = 0.5
_MOST_BYTES = 1024**2
"""Read of one journal at a time."""

_ANCHOR = "anchor"
_KINDS = {
    HomeEventKind.CHECK: {"check", "verify", "stop", "run"},
    HomeEventKind.APPROVAL: {"ask", "approve", "deny", "revoke", "expire"},
    HomeEventKind.PUSH: {"push"},
    HomeEventKind.PULL_REQUEST: {"pr-open", "pr-merged"},
    HomeEventKind.DISK: {"gc", "gc-forget", "clean", "layers-gc", "layers-remove", "layers-build", "images-remove"},
}


def list_recent(home: Home, limit: int) -> tuple[HomeEvent, ...]:
    """The newest events of all journals, oldest first."""
    others = _sizes(home).keys() - {HOME_JOURNAL}
    # The rest has older ones. The home's own is always read: marks are written to it for events of the others.
    newest = [HOME_JOURNAL, *nlargest(limit, others, key=lambda name: _changed_at(home.journal(name)))]
    found = (
        event
        for name in newest
        for event in _make_events(name, read_last_entries(home, name, limit, except_operation=_ANCHOR))
    )
    return tuple(sorted(found, key=lambda event: event.at)[-limit:])


def follow_home(home: Home, poll_s: float = POLL_S) -> Iterator[HomeEvent | None]:
    """Yield what happens from now on, and None after each look, so that the caller can end."""
    places = _sizes(home)
    while True:
        for name, size in _sizes(home).items():
            if size > places.get(name, 0):
                places[name], events = _read_new(home, name, places.get(name, 0))
                yield from events
        yield None
        time.sleep(poll_s)


def make_event(journal: str, entry: JournalEntry) -> HomeEvent:
    """The event of one entry."""
    is_task = journal != HOME_JOURNAL
    usual = HomeEventKind.TASK if is_task else HomeEventKind.REPOSITORY
    return HomeEvent(
        id=f"{journal}/{entry.seq or 0}",
        at=entry.at,
        kind=next((kind for kind, names in _KINDS.items() if entry.operation in names), usual),
        task_id=journal if is_task else None,
        operation=entry,
    )


def _sizes(home: Home) -> dict[str, int]:
    """The size of each journal, by its name."""
    try:
        with os.scandir(home.journal(HOME_JOURNAL).parent) as found:
            return {one.name[:-6]: one.stat().st_size for one in found if one.name.endswith(".jsonl")}
    except OSError:  # the home is new, or a journal was removed with its repository meanwhile: the next look sees it
        return {}


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _read_new(home: Home, name: str, place: int) -> tuple[int, list[HomeEvent]]:
    """Whole lines after a place. Returns the place after them."""
    try:
        with home.journal(name).open("rb", buffering=0) as file:
            chunk = os.pread(file.fileno(), _MOST_BYTES, place)
    except OSError:
        return place, []
    whole = chunk[: chunk.rfind(b"\n") + 1]
    return place + len(whole), list(_make_events(name, map(parse_entry, whole.splitlines())))


def _make_events(name: str, entries: Iterable[JournalEntry | None]) -> Iterator[HomeEvent]:
    """Damaged lines, and the marks that tie journals together, are no events."""
    return (make_event(name, entry) for entry in entries if entry is not None and entry.operation != _ANCHOR)
