"""What a check's rules collect from files that a guest made to be in the way of that. Ids: THREATS section S."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox.checks import coverage
from sandbox.checks.output_lines import ReadingTime
from sandbox.files.names import EntryKind, WalkEntry
from sandbox.files.tree import WorktreeFiles
from sandbox.models import ArtifactList, ArtifactRule, Check
from sandbox.store import artifact_store
from sandbox.store.home import Home
from sandbox.workbench.checks import collected_artifacts, run

OWNER, RUN = "local-some", "run-" + "0" * 32
COVERAGE = b'<coverage lines-valid="8" lines-covered="6"/>'
CHECK = Check(
    id="test",
    label="test",
    argv=("true",),
    artifacts=(ArtifactRule(path="*.xml", coverage="cobertura"), ArtifactRule(path="*.o")),
)


class Room:
    """Files of a guest, and the home of its controller."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root / "home")
        self.home.prepare()
        self.home.logs(OWNER).mkdir()
        self.workspace = root / "workspace"
        self.workspace.mkdir()

    def collect(self, check: Check = CHECK) -> ArtifactList:
        def admit(_size: int) -> AbstractContextManager[None]:
            return nullcontext()

        with WorktreeFiles(self.workspace) as files:
            return collected_artifacts.collect_artifacts(self.home, OWNER, RUN, check, files, admit)


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def test_s190_of_names_that_are_refused_only_the_first_are_kept(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: 12 MB without the bound."""

    def find_entries(*_arguments: object) -> Iterator[WalkEntry]:
        for number in range(3_000):
            yield WalkEntry(b"x" * 4000 + b"%d" % number, EntryKind.REJECTED, executable=False, size=0)

    monkeypatch.setattr(collected_artifacts, "_find_entries", find_entries)
    tracemalloc.start()
    try:
        found = room.collect()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * 1024**2
    assert {one.reason for one in found.refused} == {"special"}


def _fail(*_arguments: object) -> None:
    raise LookupError("a fault")


def test_s189_a_coverage_file_of_an_unknown_encoding_is_refused_alone(room: Room) -> None:
    (room.workspace / "a.xml").write_bytes(b'<?xml version="1.0" encoding="nope"?>' + COVERAGE)
    (room.workspace / "b.xml").write_bytes(COVERAGE)
    found = room.collect()
    assert [(one.path, one.reason) for one in found.refused] == [("a.xml", "no-coverage")]
    assert len(found.artifacts) == 2, "the file itself is kept"
    assert found.coverage is not None
    assert found.coverage.lines_total == 8


def test_s189_a_fault_in_a_reader_of_coverage_costs_that_file_alone(
    room: Room, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (room.workspace / "a.xml").write_bytes(COVERAGE)
    monkeypatch.setitem(coverage.READERS, "cobertura", _fail)
    found = room.collect()
    assert [(one.path, one.reason) for one in found.refused] == [("a.xml", "unreadable")]
    assert [one.path for one in found.artifacts] == ["a.xml"]
    assert "LookupError: a fault" in caplog.text


def test_s208_the_coverage_files_of_a_run_share_the_time_that_reading_takes(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are kept. What else a collection does, such as hashing, takes none of it. Control: with time all count."""
    check = Check(id="t", label="t", argv=("true",), artifacts=(ArtifactRule(path="*.info", coverage="lcov"),))
    for name in "abc":
        (room.workspace / f"{name}.info").write_bytes(b"LF:1\nLH:1\n")
    read, store = coverage.read_lcov, artifact_store.store_content

    def read_slowly(content: bytes, left: ReadingTime) -> tuple[int, int] | None:
        work(0.2)
        return read(content, left)

    def store_slowly(home: Home, chunks: Iterable[bytes]) -> tuple[str, int]:
        work(0.2)
        return store(home, chunks)

    monkeypatch.setitem(coverage.READERS, "lcov", read_slowly)
    monkeypatch.setattr(artifact_store, "store_content", store_slowly)
    for most_s, counted in ((0.3, 1), (3.0, 3)):
        monkeypatch.setattr(collected_artifacts, "COVERAGE_S", most_s)
        found = room.collect(check)
        assert len(found.artifacts) == 3
        assert found.coverage is not None
        assert found.coverage.lines_total == counted
        assert [one.reason for one in found.refused] == ["too-slow"] * (3 - counted)


def work(cost_s: float) -> None:
    """Take processor time."""
    ends_at = time.thread_time() + cost_s
    while time.thread_time() < ends_at:
        pass


def test_s189_whatever_artifacts_raise_a_run_keeps_its_verdict(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """`run_one` saves the record after the artifacts, with these notes."""

    def fail(*_arguments: object) -> None:
        raise RecursionError

    services: Any = SimpleNamespace(home=room.home)
    assert run._collect_artifacts(services, OWNER, RUN, CHECK, room.workspace) == ()
    monkeypatch.setattr(collected_artifacts, "collect_artifacts", fail)
    (note,) = run._collect_artifacts(services, OWNER, RUN, CHECK, room.workspace)
    assert "RecursionError" in note
