"""The events of one task for its page (SSE): also those between the making of the page and its connection.

A page says up to where it shows the journal. A browser that connects again says what it got last (`Last-Event-ID`).
Either way the stream begins with the entries after that, so that no change passes a page unseen.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import anyio.to_thread
from starlette.requests import Request

from sandbox.agent.json_lines import write_line
from sandbox.models import JournalEntry, TaskEvent, TaskEventKind
from sandbox.workbench import Workbench

_MOST_MISSED = 100
"""Entries: a page that missed more gets the newest."""

_MOST_DIGITS = 15


def find_place(request: Request) -> int | None:
    """The number of the last entry that the page has; None if it does not say."""
    said = request.headers.get("last-event-id") or request.query_params.get("after", "")
    return int(said) if said.isascii() and said.isdecimal() and len(said) <= _MOST_DIGITS else None


async def stream_task(workbench: Workbench, task_id: str, after: int | None) -> AsyncIterator[str]:
    """The stream; an operation has the number of its journal entry as id."""
    events, ended = follow_after(workbench, task_id, after), object()
    while (event := await anyio.to_thread.run_sync(next, events, ended, abandon_on_cancel=True)) is not ended:
        if isinstance(event, TaskEvent):
            yield format_event(event)


def format_event(event: TaskEvent) -> str:
    """One event. Its JSON in ASCII holds no line break of any kind."""
    place = f"id: {number}\n" if (number := _number(event)) else ""
    return f"{place}event: {event.kind.value}\ndata: {write_line(event)}\n\n"


def follow_after(workbench: Workbench, task_id: str, after: int | None) -> Iterator[TaskEvent | None]:
    """As `Workbench.look_at_task`, after the operations that came since the entry `after`; each of them once."""
    missed: list[JournalEntry] = []
    is_first = True
    for event in workbench.look_at_task(task_id):
        if is_first and after is not None:  # what comes from now on is in `event` and those after it
            missed += _list_missed(workbench, task_id, after)
            for entry in missed:
                yield TaskEvent(at=entry.at, kind=TaskEventKind.OPERATION, task_id=task_id, operation=entry)
        is_first = False
        operation = event.operation if event is not None else None
        if operation is not None and operation in missed:
            yield None
            continue
        if operation is not None:
            missed.clear()  # the follower has them before all others
        yield event


def _list_missed(workbench: Workbench, task_id: str, after: int) -> list[JournalEntry]:
    """What came since the entry `after`: all, if the journal has none of that number, because it began anew when the
    task moved to another host.
    """
    entries = workbench.log(task_id, limit=_MOST_MISSED)
    is_other = max((entry.seq or 0 for entry in entries), default=0) < after
    return [entry for entry in entries if (entry.seq or 0) > (0 if is_other else after)]


def _number(event: TaskEvent) -> int:
    """The number of its journal entry; 0 for another event, and for an entry of a version that did not count."""
    return (event.operation.seq or 0) if event.operation is not None else 0
