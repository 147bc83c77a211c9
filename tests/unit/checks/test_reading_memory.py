"""What readers of results take is reserved from the budget of memory that all threads share."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.checks import reading_memory
from sandbox.checks.collected import MOST_RESULTS, CollectedResults
from sandbox.checks.line_results import read_line_results
from sandbox.checks.output_results import read_output
from sandbox.checks.report import read_report
from sandbox.memory import BUDGET_BYTES, MemoryBudget
from sandbox.models.checks import ResultPatterns

MIB = 1024**2
TIMES = MOST_RESULTS + 1
PASSED, FAILED = b"ok\n" * TIMES, b"not ok\nx\n" * TIMES
JUNIT = b"<testsuite>" + b"<testcase/>" * TIMES + b"</testsuite>"


class Reserved(MemoryBudget):
    """Notes what is reserved."""

    def __init__(self) -> None:
        super().__init__(BUDGET_BYTES)
        self.sizes: list[int] = []

    @contextmanager
    def reserve(self, size_bytes: int, deadline_s: float) -> Iterator[None]:
        self.sizes.append(size_bytes)
        with super().reserve(size_bytes, deadline_s):
            yield


@pytest.fixture
def reserved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    budget = Reserved()
    monkeypatch.setattr(reading_memory, "PROCESS_BUDGET", budget)
    return budget.sizes


def read(folder: Path, form: str) -> CollectedResults:
    results, logs = CollectedResults(), sorted(folder.iterdir())
    if form == "report":
        read_report(folder, results=results)
    elif form == "output":
        read_output(logs, "tap", ".", results, failed=True)
    else:
        read_line_results(logs, ResultPatterns(passed="^()$"), results)
    return results


READ: dict[str, tuple[str, dict[str, bytes]]] = {
    "a report of TAP": ("report", {"a.tap": PASSED}),
    "two of them": ("report", {"a.tap": PASSED, "b.t": PASSED}),
    "failed tests": ("report", {"a.tap": FAILED}),
    "JUnit": ("report", {"a.xml": JUNIT}),
    "output": ("output", {"stdout": PASSED, "stderr": PASSED}),
    "lines of output": ("lines", {"stdout": b"\n" * TIMES}),
}


@pytest.mark.parametrize(("form", "content"), READ.values(), ids=READ)
def test_s190_what_a_small_file_costs_is_reserved(
    tmp_path: Path, reserved: list[int], form: str, content: dict[str, bytes]
) -> None:
    """Control: none of these files is large."""
    for name, text in content.items():
        (tmp_path / name).write_bytes(text[:100])
    read(tmp_path, form)  # what is loaded and compiled once
    for name, text in content.items():
        (tmp_path / name).write_bytes(text)
        assert len(text) < MIB // 4
    tracemalloc.start()
    try:
        results = read(tmp_path, form)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(results.results) == MOST_RESULTS
    assert 10 * MIB < peak < reserved[-1]


def test_s190_of_many_files_the_results_of_one_are_in_memory_beside_those_that_are_kept(tmp_path: Path) -> None:
    """Control: with those of the file before it, these took 36 MiB."""
    for number in range(4):
        (tmp_path / f"{number}.tap").write_bytes(PASSED)
    tracemalloc.start()
    try:
        read(tmp_path, "report")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 30 * MIB


def test_a_small_report_does_not_wait_for_memory(tmp_path: Path, reserved: list[int]) -> None:
    (tmp_path / "a.tap").write_bytes(b"ok\n" * 1000)
    assert len(read(tmp_path, "report").results) == 1000
    assert reserved == []


def test_readers_together_leave_work_on_clones_most_of_the_budget(reserved: list[int]) -> None:
    """Control: the second one goes on when the first has ended."""
    entered = threading.Event()

    def read_second() -> None:
        with reading_memory.reserve_for_reading(BUDGET_BYTES):
            entered.set()

    second = threading.Thread(target=read_second)
    with reading_memory.reserve_for_reading(BUDGET_BYTES):
        second.start()
        assert not entered.wait(0.2)
        assert sum(reserved) == BUDGET_BYTES // 4
    assert entered.wait(30)
    second.join()


def test_what_gets_no_memory_in_time_is_read_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_memory, "PROCESS_BUDGET", MemoryBudget(1))
    (tmp_path / "a.tap").write_bytes(PASSED)
    assert len(read(tmp_path, "report").results) == MOST_RESULTS
