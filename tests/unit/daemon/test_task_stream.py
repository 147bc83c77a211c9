"""The stream of a task's page: what happened before the page connected is in it, once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import resources
from itertools import islice
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from starlette.requests import Request

from sandbox.daemon.task_stream import LeftOut, find_place, follow_after, format_event
from sandbox.models import Actor, JournalEntry, TaskEvent, TaskEventKind
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Desk:
    return Desk(upstream, tmp_path / "home")


def operations(found: list[TaskEvent | LeftOut | None]) -> list[str]:
    return [
        event.operation.operation for event in found if isinstance(event, TaskEvent) and event.operation is not None
    ]


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
    later = next(event for event in events if isinstance(event, TaskEvent))
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


TASK = "task-12345678-1111-4222-8333-123456789abc"


def entry(seq: int, operation: str = "edit") -> JournalEntry:
    digest = f"sha256:{seq:064}"
    return JournalEntry(
        seq=seq, prev=digest, at=datetime.now(UTC), actor=Actor.CLI, operation=operation, arguments=digest,
        result="ok", duration_s=0.0,
    )  # fmt: skip


def remote(journal: list[JournalEntry], *followed: JournalEntry | None) -> Workbench:
    """A task of a cluster, with its journal now and what its follower finds; a None is a look without news."""

    def look(_task_id: str) -> Iterator[TaskEvent | None]:
        for one in followed:
            yield None if one is None else event_of(one)

    return MagicMock(spec=Workbench, look_at_task=look, log=lambda _task_id, limit: tuple(journal[-limit:]))


def event_of(one: JournalEntry) -> TaskEvent:
    return TaskEvent(at=one.at, kind=TaskEventKind.OPERATION, task_id=TASK, operation=one)


def test_a_task_that_moves_to_another_worker_goes_on_for_a_page_that_is_open() -> None:
    """The journal of the new worker counts from 1 again."""
    journal = [entry(number) for number in range(1, 43)]
    moved = [entry(1, "take-over"), entry(2, "check")]
    found = [*follow_after(remote(journal, journal[-1], None, *moved), TASK, 40)]
    assert found == [event_of(journal[-2]), event_of(journal[-1]), None, None, *map(event_of, moved)]


def test_a_page_that_connects_again_after_its_task_moved_gets_all_of_the_new_journal() -> None:
    moved = [entry(1, "take-over"), entry(2, "check")]
    found = [*follow_after(remote(moved, None, entry(3, "commit")), TASK, 40)]
    assert operations(found) == ["take-over", "check", "commit"]
    assert not any(isinstance(event, LeftOut) for event in found)


@pytest.mark.parametrize(
    ("length", "after", "left_out"),
    [(150, 50, 0), (150, 49, 1), (200, 50, 50), (150, 900, 50)],
    ids=["as many as are sent", "one more", "many", "of a new journal"],
)
def test_a_page_that_missed_more_than_it_gets_says_so(length: int, after: int, left_out: int) -> None:
    """As after a night in which the computer slept."""
    journal = [entry(number) for number in range(1, length + 1)]
    found = [*follow_after(remote(journal, None), TASK, after)]
    assert [event for event in found if isinstance(event, LeftOut)] == [LeftOut(left_out)][: left_out > 0]
    assert operations(found) == ["edit"] * 100
    if left_out:
        assert isinstance(found[0], LeftOut)
        assert format_event(found[0]) == f"event: left-out\ndata: {left_out}\n\n"


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


def test_the_page_listens_to_each_kind_of_event() -> None:
    script = (resources.files("sandbox.daemon") / "pages" / "live.js").read_text()
    events: list[TaskEvent | LeftOut] = [LeftOut(1)]
    events += [TaskEvent(at=datetime.now(UTC), kind=kind, task_id=TASK) for kind in TaskEventKind]
    names = [format_event(event).partition("event: ")[2].partition("\n")[0] for event in events]
    assert [name for name in names if f'events.addEventListener("{name}"' not in script] == []
