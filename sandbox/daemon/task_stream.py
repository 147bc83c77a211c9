"""The events of one task for its page (SSE): also those between the making of the page and its connection.

A page says up to where it shows the journal. A browser that connects again says what it got last (`Last-Event-ID`).
Either way the stream begins with the entries after that. Of many it has the newest, after the number of the others:
the page says then that it has to be loaded again. A task that goes on on another worker has a new journal there, which
counts from 1 again: a page that has more than the journal gets all of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

import anyio.to_thread
from starlette.requests import Request

from sandbox.agent.json_lines import write_line
from sandbox.lazy_dataclass import dataclass
from sandbox.models import JournalEntry, TaskEvent, TaskEventKind
from sandbox.workbench import Workbench

_MOST_MISSED = 100
"""Entries: a page that missed more gets the newest, and the number of the others."""

_MOST_DIGITS = 15


@dataclass(frozen=True)
class LeftOut:
    """So many operations, which the page missed, are not in the stream."""

    count: int


def find_place(request: Request) -> int | None:
    """The number of the last entry that the page has; None if it does not say."""
    said = request.headers.get("last-event-id") or request.query_params.get("after", "")
    return int(said) if said.isascii() and said.isdecimal() and len(said) <= _MOST_DIGITS else None


async def stream_task(workbench: Workbench, task_id: str, after: int | None) -> AsyncIterator[str]:
    """The stream; an operation has the number of its journal entry as id."""
    events, ended = follow_after(workbench, task_id, after), object()
    while (event := await anyio.to_thread.run_sync(next, events, ended, abandon_on_cancel=True)) is not ended:
        if isinstance(event, (TaskEvent, LeftOut)):
            yield format_event(event)


def format_event(event: TaskEvent | LeftOut) -> str:
    """One event. Its JSON in ASCII holds no line break of any kind."""
    if isinstance(event, LeftOut):
        return f"event: left-out\ndata: {event.count}\n\n"
    number = event.operation.seq if event.operation is not None else None
    place = f"id: {number}\n" if number else ""
    return f"{place}event: {event.kind.value}\ndata: {write_line(event)}\n\n"


def follow_after(workbench: Workbench, task_id: str, after: int | None) -> Iterator[TaskEvent | LeftOut | None]:
    """As `Workbench.look_at_task`, after the operations that came since the entry `after`; each of them once."""
    missed: Sequence[JournalEntry] = ()
    is_first = True
    for event in workbench.look_at_task(task_id):
        if is_first and after is not None:  # what comes from now on is in `event` and those after it
            left_out, missed = _find_missed(workbench.log(task_id, limit=_MOST_MISSED), after)
            if left_out:
                yield LeftOut(left_out)
            for entry in missed:
                yield TaskEvent(at=entry.at, kind=TaskEventKind.OPERATION, task_id=task_id, operation=entry)
        is_first = False
        yield None if event is not None and event.operation in missed else event


def _find_missed(newest: Sequence[JournalEntry], after: int) -> tuple[int, Sequence[JournalEntry]]:
    """The entries after the number `after`, and how many of them are older than `newest`. Pure.

    Entries of a version that did not count have no number and are not among them.
    """
    counted = [entry for entry in newest if entry.seq]
    last = counted[-1].seq if counted else None
    known = after if last is None or last >= after else 0  # else: another journal
    missed = [entry for entry in counted if (entry.seq or 0) > known]
    return (missed[0].seq or 0) - known - 1 if missed else 0, missed
