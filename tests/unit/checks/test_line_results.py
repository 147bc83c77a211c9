"""Test results from lines of a program's output, by the patterns of its profile."""

from __future__ import annotations

import tracemalloc
from itertools import count
from pathlib import Path

import pytest
from pydantic import ValidationError

from sandbox.checks import line_results
from sandbox.checks.collected import CollectedResults
from sandbox.checks.line_results import read_line_results
from sandbox.checks.output_lines import ReadingTime
from sandbox.models import Report, TestOutcome
from sandbox.models.checks import ResultPatterns

PATTERNS = ResultPatterns(passed=r"^\[PASS\] (.*)", failed=r"^\[FAIL\] (.*)", skipped=r"^\[SKIP\] (\S+)")


def read(
    tmp_path: Path, text: bytes, patterns: ResultPatterns = PATTERNS
) -> tuple[Report | None, list[tuple[str, str]], bool]:
    log = tmp_path / "log"
    log.write_bytes(text)
    results = CollectedResults()
    report = read_line_results([log], patterns, results)
    return report, [(one.test, one.outcome.value) for one in results.results], results.complete


def test_each_line_that_matches_is_a_test(tmp_path: Path) -> None:
    text = b"start\n[PASS] one two\n\x1b[32m[PASS] green\x1b[0m\n[FAIL] three\n[SKIP] four why\n[PASS]nothing\n"
    report, found, complete = read(tmp_path, text)
    assert found == [("one two", "passed"), ("green", "passed"), ("three", "failed"), ("four", "skipped")]
    assert report is not None
    assert (report.tests, report.failures, report.errors, report.skipped) == (4, 1, 0, 1)
    assert [(one.name, one.message) for one in report.failed] == [("three", "[FAIL] three")]
    assert complete


def test_output_without_such_a_line_is_no_report(tmp_path: Path) -> None:
    assert read(tmp_path, b"[pass] one\n")[0] is None


def test_names_of_the_guest_are_made_safe(tmp_path: Path) -> None:
    _, found, _ = read(tmp_path, b"[FAIL] a\x07b\x9b2Jc " + b"x" * 9000 + b"\n\xff[PASS] x\n[PASS] \xff\n")
    assert "\x07" not in found[0][0]
    assert "\x9b" not in found[0][0]
    assert len(found[0][0]) <= 500
    assert found[1:] == [("\ufffd", "passed")]


def test_a_pattern_that_backtracks_ends_in_time(tmp_path: Path) -> None:
    """Each further letter doubles its steps: without the limit, this line takes years."""
    slow = ResultPatterns(failed=r"^((a|aa)+)$")
    report, _, complete = read(tmp_path, b"a" * 99 + b"!\n", slow)
    assert report is None
    assert not complete


def test_a_busy_host_does_not_cut_results_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour passes at each look at the clock, without processor time. Control: of that there is a limit."""
    hours = count(step=3600)
    lines = b"[PASS] one\n[PASS] two\n"
    with monkeypatch.context() as patch:
        patch.setattr("time.monotonic", lambda: float(next(hours)))
        assert read(tmp_path, lines)[1:] == ([("one", "passed"), ("two", "passed")], True)
    monkeypatch.setattr(line_results, "ReadingTime", lambda: ReadingTime(-1.0))
    assert read(tmp_path, lines) == (None, [], False)


def test_s190_of_failures_only_those_that_are_shown_are_kept(tmp_path: Path) -> None:
    """Control: without the bound, these took 15 MB."""
    (tmp_path / "log").write_bytes((b"[FAIL] " + b"x" * 400 + b"\n") * 10_000)
    tracemalloc.start()
    try:
        read_line_results([tmp_path / "log"], ResultPatterns(failed=r"^\[FAIL\] (.)"), CollectedResults())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 7.5 * 1024**2


def test_more_tests_than_are_kept_are_counted_and_said(tmp_path: Path) -> None:
    report, found, complete = read(tmp_path, b"".join(b"[PASS] %d\n" % i for i in range(20_001)))
    assert report is not None
    assert (report.tests, len(found), complete) == (20_001, 20_000, False)


@pytest.mark.parametrize("bad", [{"passed": "no group"}, {"failed": "("}, {"skipped": ""}, {"flaky": "(x)"}])
def test_patterns_that_cannot_work_are_refused(bad: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        ResultPatterns.model_validate(bad)


def test_failures_are_asked_for_first() -> None:
    order = [outcome for outcome, _ in PATTERNS.by_outcome()]
    assert order == [TestOutcome.FAILED, TestOutcome.SKIPPED, TestOutcome.PASSED]
