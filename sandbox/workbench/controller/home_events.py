"""Use-case: follow what happens in a home, in any process.

Theory. Every controller writes each operation into a journal, a file that only grows. A follower remembers how long
each was and reads what came since. So it needs no connection to those who work, and it misses no event of one that is
killed: an operation that is not in a journal has not ended. Who stores these places goes on from there in another
process.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from heapq import heappop, heappush, nlargest
from itertools import islice, takewhile
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern
from sandbox.models import TASK_ID_PATTERN, HomeEvent, HomeEventKind, JournalEntry
from sandbox.store.growing_files import read_lines_from
from sandbox.store.home import Home
from sandbox.store.journal import ANCHOR, HOME_JOURNAL, LOCK_TIMEOUT_S, parse_entry, read_entries_backward

POLL_S = 0.5
_LONGEST_POLL_S = 24 * 3600
_MOST_BYTES = 1024**2
"""Read of one journal at a time. An entry that was written with all of its files has 1.3 MB at most."""

LISTED_BYTES = 2 * 1024**2
"""Of the lines of all events in one list, which may be kept for each of a hundred listeners."""

_ID = lazy_pattern(rf"({HOME_JOURNAL}|{TASK_ID_PATTERN.strip('^$')})/([0-9]{{1,15}})")
_OVERLAP = timedelta(seconds=LOCK_TIMEOUT_S)
"""An entry may be written so long after the end of its operation."""
_KINDS = {
    HomeEventKind.CHECK: {"check", "verify", "explore", "stop", "run"},
    HomeEventKind.APPROVAL: {"ask", "approve", "deny", "revoke", "expire"},
    HomeEventKind.PUSH: {"push"},
    HomeEventKind.PULL_REQUEST: {"pr-open", "pr-merged"},
    HomeEventKind.DISK: {"gc", "gc-forget", "clean", "layers-gc", "layers-remove", "layers-build", "images-remove"},
}


@dataclass(frozen=True)
class JournalLine:
    """One line of a journal. `end`: the place after it, in bytes. `event`: None for a line that is none."""

    journal: str
    end: int
    event: HomeEvent | None


class _NewestEvents:
    """The newest of many events: at most `limit` with `LISTED_BYTES` of lines together, and at least one.
    `order`: the time by which they are compared.
    """

    def __init__(self, limit: int, order: Callable[[HomeEvent], datetime]) -> None:
        self._limit, self._order = limit, order
        self._kept: list[tuple[datetime, int, int, HomeEvent]] = []
        self._bytes = self._count = 0
        self._dropped: datetime | None = None

    def add(self, event: HomeEvent, size: int) -> None:
        """`size`: of its line, in bytes. Those of one journal are added newest first."""
        at = self._order(event)
        if self._dropped is not None and at < self._dropped:
            return
        self._count += 1
        heappush(self._kept, (at, -self._count, size, event))
        self._bytes += size
        while len(self._kept) > self._limit or (self._bytes > LISTED_BYTES and len(self._kept) > 1):
            self._dropped, _, size, _ = heappop(self._kept)
            self._bytes -= size

    def is_too_old(self, event: HomeEvent) -> bool:
        """Whether neither this one nor one before it in its journal can be among the newest."""
        return self._dropped is not None and _ended_at(event) < self._dropped - _OVERLAP

    def list(self) -> tuple[HomeEvent, ...]:
        """All that were kept, oldest first."""
        return tuple(kept[-1] for kept in sorted(self._kept))


def list_recent(home: Home, limit: int) -> tuple[HomeEvent, ...]:
    """The newest events of all journals, oldest first; fewer than `limit` if they have more than `LISTED_BYTES`.

    Raises: `invalid_input` for `limit`.
    """
    _require_limit(limit)
    others = measure_journals(home).keys() - {HOME_JOURNAL}
    # The rest has older ones. The home's own is always read: marks are written to it for events of the others.
    names = [HOME_JOURNAL, *nlargest(limit, others, key=lambda name: _changed_at(home.journal(name)))]
    newest = _NewestEvents(limit, lambda event: event.at)
    for name in names:
        for event, size in takewhile(lambda found: not newest.is_too_old(found[0]), _read_backward(home, name)):
            if event.operation.operation != ANCHOR:
                newest.add(event, size)
    return newest.list()


def list_after(home: Home, event_id: str, limit: int) -> tuple[HomeEvent, ...]:
    """Events that a follower may not have got when it got this one, oldest first, and of many the newest `limit`; fewer
    if these have more than `LISTED_BYTES`.

    A follower gets those of one journal in order, and those of others as it finds them. So of the others some that it
    has may be among them: what ended up to `_OVERLAP` before. An event that is too long ago has no place to go on from:
    all come. None for text that is no id of an event. Raises: `invalid_input` for `limit`.
    """
    _require_limit(limit)
    found = _ID.fullmatch(event_id)
    if not found:
        return ()
    journal, seq = found[1], int(found[2])
    last = next((one for one, _ in islice(_read_backward(home, journal), limit) if _find_seq(one) == seq), None)
    if last is None:
        return list_recent(home, limit)
    since = _ended_at(last) - _OVERLAP
    newest = _NewestEvents(limit, _ended_at)
    for name in measure_journals(home):
        if _changed_at(home.journal(name)) < since.timestamp():
            continue
        for event, size in takewhile(lambda found: not newest.is_too_old(found[0]), _read_backward(home, name)):
            if _find_seq(event) <= seq if name == journal else _ended_at(event) < since - _OVERLAP:
                break
            if event.operation.operation != ANCHOR and (name == journal or _ended_at(event) >= since):
                newest.add(event, size)
    return newest.list()


def _require_limit(limit: int) -> None:
    if not 0 <= limit <= sys.maxsize:
        raise SandboxError(ErrorCode.INVALID_INPUT, f"The number of events to list must be from 0 to {sys.maxsize}")


def follow_home(home: Home, poll_s: float) -> Iterator[HomeEvent | None]:
    """Yield what happens from this call on, and None after each look, so that the caller can end.

    Raises: `invalid_input` for `poll_s`.
    """
    require_poll_interval(poll_s)
    return _look_again(home, measure_journals(home), poll_s)


def require_poll_interval(poll_s: float) -> None:
    """Raises: `invalid_input` for what `time.sleep` does not take."""
    if not 0 <= poll_s <= _LONGEST_POLL_S:  # nor is NaN
        raise SandboxError(ErrorCode.INVALID_INPUT, f"poll_s must be from 0 to {_LONGEST_POLL_S} seconds")


def _look_again(home: Home, places: dict[str, int], poll_s: float) -> Iterator[HomeEvent | None]:
    while True:
        for line in read_new_lines(home, places):
            places[line.journal] = line.end
            if line.event is not None:
                yield line.event
        yield None
        time.sleep(poll_s)


def read_new_lines(home: Home, places: Mapping[str, int]) -> Iterator[JournalLine]:
    """One look: what the journals have after these places; of a journal without a place all. Of much the next part.

    A journal that is shorter than its place is not the one that was read: what it has now is passed over.
    """
    try:
        sizes = measure_journals(home)
    except OSError:  # too many open files: the next look sees it
        return
    for name, size in sizes.items():
        place = places.get(name, 0)
        if size > place:
            yield from _read_lines(home, name, place)
        elif size < place:
            yield JournalLine(name, size, None)


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


def measure_journals(home: Home) -> dict[str, int]:
    """The size of each journal, by its name: the places from which what happens from now on is read."""
    sizes: dict[str, int] = {}
    with suppress(FileNotFoundError), os.scandir(home.journal(HOME_JOURNAL).parent) as found:  # a home may be new
        for one in found:
            if one.name.endswith(".jsonl"):
                with suppress(FileNotFoundError):  # removed with its repository meanwhile
                    sizes[one.name[:-6]] = one.stat().st_size
    return sizes


def _find_seq(event: HomeEvent) -> int:
    return event.operation.seq or 0


def _ended_at(event: HomeEvent) -> datetime:
    return event.at + timedelta(seconds=event.operation.duration_s)


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _read_lines(home: Home, name: str, place: int) -> Iterator[JournalLine]:
    """Whole lines after a place. One that is too long, such as of a damaged journal, is passed over in parts."""
    lines, end = read_lines_from(home.journal(name), place, _MOST_BYTES)
    for line in lines.splitlines(keepends=True):
        place += len(line)
        yield JournalLine(name, place, next(_make_events(name, [parse_entry(line.rstrip(b"\n"))]), None))
    if not lines and end > place:
        yield JournalLine(name, end, None)


def _read_backward(home: Home, name: str) -> Iterator[tuple[HomeEvent, int]]:
    """Each entry of a journal as an event, marks too, with the length of its line in bytes; newest first."""
    return ((make_event(name, entry), size) for entry, size in read_entries_backward(home, name))


def _make_events(name: str, entries: Iterable[JournalEntry | None]) -> Iterator[HomeEvent]:
    """Damaged lines, and the marks that tie journals together, are no events."""
    return (make_event(name, entry) for entry in entries if entry is not None and entry.operation != ANCHOR)
