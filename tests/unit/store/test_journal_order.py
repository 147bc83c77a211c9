"""A journal by the times at which operations started, in blocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.store import journal_order
from sandbox.store.journal import parse_entry
from sandbox.store.journal_order import read_by_time
from tests.unit.long_journal import START, make_entry, write_journal

ALL = datetime.min.replace(tzinfo=UTC)
TIMES = st.lists(st.integers(min_value=0, max_value=20), max_size=40)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_order, "BLOCK_BYTES", 700)  # two or three lines


@given(seconds=TIMES, since=st.integers(min_value=0, max_value=21))
def test_lines_come_by_time_then_by_number(
    tmp_path_factory: pytest.TempPathFactory, seconds: list[int], since: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "name.jsonl"
    times = [START + timedelta(seconds=second) for second in seconds]
    write_journal(path, (make_entry(n, at=at) for n, at in enumerate(times)))
    start = START + timedelta(seconds=since)
    found = list(read_by_time(path, start))
    expected = sorted((at, number) for number, at in enumerate(times, start=1) if at >= start)
    assert [(line.at, line.number) for line in found] == expected
    lines = path.read_bytes().split(b"\n")
    assert all(line.content == lines[line.number - 1] for line in found)
    assert {line.journal for line in found} <= {"name"}


def test_lines_that_are_no_entries_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "name.jsonl"
    write_journal(path, (make_entry(n) for n in range(3)))
    first, second, third = path.read_bytes().splitlines(keepends=True)
    old = second.replace(b'"schema_version":1,', b"").replace(b'"at"', b'"schema_version":1,"at"')
    damaged = [b"{}\n", b"not json\n", b"\n", b'{"schema_version":1,"at":"2026"}\n', b"\xff" * 2000 + b"\n"]
    path.write_bytes(b"".join([first, *damaged, old, third.rstrip(b"\n")]))
    found = list(read_by_time(path, ALL))
    assert [line.number for line in found] == [1, 7, 8]
    entries = [parse_entry(line.content) for line in found]
    assert [entry.operation for entry in entries if entry] == ["operation-0", "operation-1", "operation-2"]


def test_a_time_without_zone_is_in_utc(tmp_path: Path) -> None:
    path = tmp_path / "name.jsonl"
    write_journal(path, [make_entry(1, at=datetime(2026, 1, 1)), make_entry(2, at=START - timedelta(seconds=1))])
    assert [line.number for line in read_by_time(path, ALL)] == [2, 1]


def test_what_is_appended_meanwhile_waits_for_the_next_reading(tmp_path: Path) -> None:
    path = tmp_path / "name.jsonl"
    write_journal(path, (make_entry(n) for n in range(9)))
    whole = path.read_bytes()
    found = read_by_time(path, ALL)
    first = next(found)
    path.write_bytes(whole * 2)
    assert [first.number, *(line.number for line in found)] == list(range(1, 10))


def test_a_missing_journal_has_no_lines(tmp_path: Path) -> None:
    assert list(read_by_time(tmp_path / "name.jsonl", ALL)) == []
