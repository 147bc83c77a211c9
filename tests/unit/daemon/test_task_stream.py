"""The stream of a task's page: what happened before the page connected is in it, once."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from starlette.requests import Request

from sandbox.daemon.task_stream import find_place, follow_after, format_event
from sandbox.models import JournalEntry, TaskEvent, TaskEventKind
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Desk:
    return Desk(upstream, tmp_path / "home")


def operations(found: list[TaskEvent | None]) -> list[str]:
    return [event.operation.operation for event in found if event is not None and event.operation is not None]


@pytest.mark.parametrize(("says", "missed"), [(True, ["snapshot", "commit"]), (False, [])], ids=["page", "control"])
def test_what_happens_between_a_page_and_its_connection_is_sent_first_and_once(
    desk: Desk, says: bool, missed: list[str]
) -> None:
    place = desk.workbench.log(desk.task.id)[-1].seq
    desk.write("f", b"changed\n")
    desk.workbench.snapshot(desk.task.id)
    desk.workbench.commit(desk.task.id, "changed")
    events = follow_after(desk.workbench, desk.task.id, place if says else None)
    found = list(islice(events, len(missed) + 1))
    assert operations(found) == missed
    assert found[-1] is None, "the first look has found no more"
    desk.workbench.snapshot(desk.task.id, "later")
    later = next(event for event in events if event is not None)
    assert operations([later]) == ["snapshot"]
    assert later.operation is not None
    assert format_event(later).startswith(f"id: {later.operation.seq}\nevent: operation\ndata: {{")


def test_an_entry_that_both_the_journal_and_the_follower_give_is_sent_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, look = desk.workbench.log(desk.task.id)[-1].seq, desk.workbench.look_at_task
    followed = look(desk.task.id)
    next(followed)
    desk.workbench.snapshot(desk.task.id)
    monkeypatch.setattr(desk.workbench, "look_at_task", lambda _task_id: followed)
    found = list(islice(follow_after(desk.workbench, desk.task.id, place), 4))
    assert operations(found) == ["snapshot"]


@pytest.mark.parametrize("moves", ["before", "between", "later"])
def test_a_journal_that_begins_anew_is_shown_from_its_beginning(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, moves: str
) -> None:
    """As on another worker: before the page connects again, between its two questions, and while it is open."""
    for label in ("one", "two", "three"):
        desk.workbench.snapshot(desk.task.id, label)
    old = list(desk.workbench.log(desk.task.id))
    new = [entry.model_copy(update={"seq": number, "by": None}) for number, entry in enumerate(old[1:3], 1)]
    followed = {"before": [], "between": new, "later": [old[-1], *new]}[moves]
    events = [None, *(as_event(desk.task.id, entry) for entry in followed)]
    monkeypatch.setattr(desk.workbench, "look_at_task", lambda _task_id: iter(events))
    monkeypatch.setattr(desk.workbench, "log", lambda *_, **__: tuple(old if moves == "later" else new))
    found = [event.operation for event in follow_after(desk.workbench, desk.task.id, 3) if event is not None]
    assert found == ([old[-1], *new] if moves == "later" else new)


def as_event(task_id: str, entry: JournalEntry) -> TaskEvent:
    return TaskEvent(at=entry.at, kind=TaskEventKind.OPERATION, task_id=task_id, operation=entry)


@pytest.mark.parametrize(
    ("query", "last", "place"),
    [
        (b"", b"", None),
        (b"after=7", b"", 7),
        (b"after=7", b"9", 9),
        (b"after=-1", b"", None),
        (b"after=9e9", b"", None),
        (b"after=" + b"9" * 5000, b"", None),
        (b"after=%D9%A3", b"", None),
    ],
    ids=["none", "the page", "connected again", "negative", "no number", "long", "other digits"],
)
def test_a_place_is_a_number(query: bytes, last: bytes, place: int | None) -> None:
    headers = [(b"last-event-id", last)] if last else []
    assert find_place(Request({"type": "http", "query_string": query, "headers": headers})) == place
