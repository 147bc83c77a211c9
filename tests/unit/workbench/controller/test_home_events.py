"""Events of a home: from the journals of all tasks and of the home itself."""

from __future__ import annotations

import json
import os
import re
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.models import Actor, ChangeKind, HomeEvent, HomeEventKind, JournalEntry, PatchedFile
from sandbox.store import growing_files
from sandbox.workbench import Workbench
from sandbox.workbench.controller import home_events, journaling
from sandbox.workbench.controller.home_events import make_event
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk


def test_events_of_all_journals_come_once_and_in_order(upstream: Upstream, tmp_path: Path) -> None:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    past = [event.operation.operation for event in desk.workbench.events()]
    assert set(past) == {"policy-baseline", "clone", "create"}
    assert [event.operation.operation for event in desk.workbench.events(1)] == ["create"]
    with desk.home.joinpath("repositories/journal/home.jsonl").open("ab") as marks:
        os.utime(marks.fileno())  # a mark for the task's event, written after it, made this one the newest
    assert [event.operation.operation for event in desk.workbench.events(1)] == ["create"]
    following = desk.workbench.follow_events(poll_s=0.0)
    assert next(following) is None, "the past is not repeated"
    with Workbench(desk.home, environ={}) as another:
        another.snapshot(desk.task.id, "one")
        another.repository(desk.repo_id)
    desk.workbench.set_repository(desk.repo_id, {"profile": "make"})
    task = desk.workbench.create_task(desk.repo_id, "two")
    found = [next(following) for _ in range(4)]
    seen = {(event.kind, event.operation.operation, event.task_id) for event in found if event is not None}
    assert seen == {
        (HomeEventKind.TASK, "snapshot", desk.task.id),
        (HomeEventKind.REPOSITORY, "repo-set", None),
        (HomeEventKind.TASK, "create", task.id),
    }
    assert next(following) is None


def test_half_a_line_is_left_for_the_next_look(upstream: Upstream, tmp_path: Path) -> None:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    journal = desk.home / f"repositories/journal/{desk.task.id}.jsonl"
    line = journal.read_bytes().splitlines(keepends=True)[0]
    following = desk.workbench.follow_events(poll_s=0.0)
    assert next(following) is None
    for part, expected in ((line[:40], None), (line[40:], "create")):
        with journal.open("ab") as stream:
            stream.write(part)
        event = next(following)
        assert (event.operation.operation if event else None) == expected


def test_s169_an_edit_of_many_long_names_does_not_end_the_events_of_its_task(
    upstream: Upstream, tmp_path: Path
) -> None:
    """Also not one that an earlier version wrote with all of its files: its line is longer than one look reads."""
    desk = Desk(upstream, tmp_path / "sandbox-home")
    following, watching = desk.workbench.follow_events(poll_s=0.0), desk.workbench.look_at_task(desk.task.id, 0.0)
    assert (next(following), next(watching)) == (None, None)
    file = PatchedFile(
        path="b" + "é" * 511, old_path="a" + "é" * 511, kind=ChangeKind.RENAMED, sha256_before=None, sha256_after=None
    )
    files = (file,) * journaling.MAX_FILES
    journal = desk.home / f"repositories/journal/{desk.task.id}.jsonl"
    for written in (files, journaling.shorten_files(files)):
        entry = {**json.loads(journal.read_bytes().splitlines()[0]), "operation": "patch", "files": []}
        entry["files"] = [one.model_dump(mode="json") for one in written]
        line = f"{json.dumps(entry)}\n".encode()
        assert (len(line) > home_events._MOST_BYTES) is (written is files), "void"
        with journal.open("ab") as stream:
            stream.write(line)
        desk.workbench.snapshot(desk.task.id, "after")
        found = [event.operation.operation for event in iter(lambda: next(following), None) if event is not None]
        assert found == ["patch", "snapshot"]
        seen = [event.operation for event in iter(lambda: next(watching), None) if event is not None]
        assert [entry.operation for entry in seen if entry is not None] == found, "of this task alone, too"


def test_s169_a_line_without_an_end_is_passed_over(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    line = (desk.home / f"repositories/journal/{desk.task.id}.jsonl").read_bytes().splitlines(keepends=True)[0]
    monkeypatch.setattr(home_events, "_MOST_BYTES", 1024)
    assert growing_files.LONGEST_LINES * 1024 < 20_000, "void"
    following = desk.workbench.follow_events(poll_s=0.0)
    assert next(following) is None
    with (desk.home / f"repositories/journal/{desk.task.id}.jsonl").open("ab") as stream:
        stream.write(b"x" * 20_000 + b"\n" + line)
    found = [next(following) for _ in range(8)]
    assert [event.operation.operation for event in found if event is not None] == ["create"]


def test_what_came_after_an_event_is_listed_from_all_journals(upstream: Upstream, tmp_path: Path) -> None:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    task = desk.workbench.create_task(desk.repo_id, "two")
    desk.workbench.snapshot(desk.task.id, "one")
    last = desk.workbench.events(1)[0].id
    assert last == f"{desk.task.id}/2"
    desk.workbench.snapshot(task.id, "one")
    desk.workbench.snapshot(desk.task.id, "two")
    desk.workbench.set_repository(desk.repo_id, {"profile": "make"})
    new = [(desk.task.id, "snapshot"), (None, "repo-set"), (task.id, "snapshot")]
    found = [(event.task_id, event.operation.operation) for event in desk.workbench.events_after(last)]
    assert set(found) >= set(new)
    assert found.count((desk.task.id, "snapshot")) == 1, "not those of its own journal that came before it"
    assert [event.operation.operation for event in desk.workbench.events_after(last, 1)] == ["repo-set"]


def test_events_of_long_ago_are_not_repeated(upstream: Upstream, tmp_path: Path) -> None:
    """Of another journal, what ended ten seconds before may not have been seen; what ended earlier was."""
    desk = Desk(upstream, tmp_path / "sandbox-home")
    journals = desk.home / "repositories/journal"
    for path in journals.glob("*.jsonl"):
        path.write_text(re.sub(r'"at":"[^"]*"', '"at":"2026-01-01T00:00:00Z"', path.read_text()))
    desk.workbench.snapshot(desk.task.id, "one")
    last = desk.workbench.events(1)[0].id
    assert desk.workbench.events_after(last) == ()
    assert desk.workbench.events_after(f"{desk.task.id}/1"), "the control"


def test_an_id_of_long_ago_gives_the_newest_and_no_id_gives_nothing(upstream: Upstream, tmp_path: Path) -> None:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    assert len(desk.workbench.events_after("home/999999", 2)) == 2
    for text in ("", "home", "../registry/1", f"{desk.task.id}/x", "home/1\n", f"home/{'9' * 5000}"):
        assert desk.workbench.events_after(text) == ()


def write_large(desk: Desk, journal: str, seconds: range) -> None:
    """Append an edit for each second of an hour, whose line has about 40 KB."""
    files = tuple(
        PatchedFile(path=f"{n:04d}{'x' * 196}", kind=ChangeKind.MODIFIED, sha256_before=None, sha256_after=None)
        for n in range(150)
    )
    with (desk.home / f"repositories/journal/{journal}.jsonl").open("ab") as stream:
        for second in seconds:
            at = datetime(2099, 1, 1, 0, second // 60, second % 60, tzinfo=UTC)
            entry = JournalEntry(
                at=at, actor=Actor.AGENT, operation="patch", arguments=f"sha256:{0:064d}", result="ok", duration_s=0.0,
                files=files, seq=1000 + second,
            )  # fmt: skip
            stream.write(f'{{"schema_version":1,{entry.model_dump_json()[1:]}\n'.encode())


def test_s199_a_list_of_large_events_has_the_newest_that_fit(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From all journals in the order of their times, and what is older is not read. Control: all are listed without the
    limit.
    """
    desk = Desk(upstream, tmp_path / "sandbox-home")
    other = desk.workbench.create_task(desk.repo_id, "two")
    for journal, seconds in ((desk.task.id, range(0, 600, 2)), (other.id, range(1, 601, 2))):
        write_large(desk, journal, seconds)
    parsed = list[str]()
    make = home_events.make_event

    def count(journal: str, entry: JournalEntry) -> HomeEvent:
        parsed.append(journal)
        return make(journal, entry)

    monkeypatch.setattr(home_events, "make_event", count)
    for after in (None, "home/999999", f"{desk.task.id}/1"):
        parsed.clear()
        found = desk.workbench.events_after(after) if after else desk.workbench.events(1000)
        times = [event.at.minute * 60 + event.at.second for event in found]
        assert times == list(range(600 - len(found), 600))
        sizes = [len(event.operation.model_dump_json()) for event in found]
        assert home_events.LISTED_BYTES * 0.9 < sum(sizes) <= home_events.LISTED_BYTES
        looked_up = 302 if after and after.startswith(desk.task.id) else 0
        assert len(parsed) < looked_up + 6 * len(found)
    monkeypatch.setattr(home_events, "LISTED_BYTES", 10**9)
    assert len(desk.workbench.events(1000)) > 600
    monkeypatch.setattr(home_events, "LISTED_BYTES", 1)
    assert len(desk.workbench.events(1000)) == 1, "one is always listed"


@pytest.mark.parametrize(
    ("operation", "kind"),
    [("check", HomeEventKind.CHECK), ("explore", HomeEventKind.CHECK), ("commit", HomeEventKind.TASK)],
)
def test_what_runs_checks_is_an_event_of_checks(operation: str, kind: HomeEventKind) -> None:
    entry = JournalEntry(
        at=datetime.now(UTC), actor=Actor.CLI, operation=operation, arguments=f"sha256:{'0' * 64}", result="ok",
        duration_s=0.0,
    )  # fmt: skip
    assert make_event(f"task-{uuid.uuid4()}", entry).kind is kind


def test_events_after_the_call_are_followed_and_a_number_that_is_none_is_refused(
    upstream: Upstream, tmp_path: Path
) -> None:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    following = desk.workbench.follow_events(poll_s=0.0)
    desk.workbench.snapshot(desk.task.id, "after the call")
    event = next(following)
    assert event is not None
    assert event.operation.operation == "snapshot"
    assert desk.workbench.events(0) == ()
    for number in (-1, 10**400):
        for ask in (desk.workbench.events, lambda limit: desk.workbench.events_after(event.id, limit)):
            with refused(ErrorCode.INVALID_INPUT):
                ask(number)
    with refused(ErrorCode.INVALID_INPUT):
        desk.workbench.follow_events(poll_s=-1)
