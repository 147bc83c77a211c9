"""What runners of JavaScript print for people. The samples are theirs: node 20, mocha 10, jest 29, AVA 5,
vitest 1, jasmine 5, uvu 0.5.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sandbox.checks.collected import MOST_RESULTS, CollectedResults
from sandbox.checks.output_results import read_output
from sandbox.models import Report

SAMPLES = Path(__file__).parents[2] / "data" / "node_output"
MARKS = {"passed": "+", "failed": "-", "skipped": "."}
NESTED = ("+array › finds", "+array › inner › holds")
UNEQUAL = "AssertionError [ERR_ASSERTION]: Expected values to be strictly equal:"
TO_BE = "expect(received).toBe(expected) // Object.is equality"
IN_NODE, IN_JEST = (UNEQUAL, "test/a.test.js", 5), (TO_BE, "jest/a.test.js", 3)
IN_MOCHA = [("Error: a word", None, None), (UNEQUAL, None, None)]


def read(tmp_path: Path, *texts: str) -> tuple[Report | None, CollectedResults]:
    logs = [tmp_path / f"{number}.log" for number in range(len(texts))]
    for log, text in zip(logs, texts, strict=True):
        log.write_text(text)
    results = CollectedResults()
    return read_output(logs, "node", ".", results, failed=True), results


def names(results: CollectedResults) -> list[str]:
    return [MARKS[one.outcome.value] + one.test for one in results.results]


@pytest.mark.parametrize(
    ("sample", "counts", "named", "said"),
    [
        ("node", (5, 1, 2), [*NESTED, ".skipped one", ".later", "-array › fails"], [IN_NODE]),
        ("mocha", (5, 2, 1), [*NESTED, ".array › inner › pends", "-fails too", "-array › fails"], IN_MOCHA),
        ("mocha-dots", (5, 2, 1), ["-fails too", "-array › fails"], IN_MOCHA),
        ("jest", (6, 1, 2), ["-array › fails"], [IN_JEST]),
        (
            "jest-verbose",
            (5, 1, 2),
            [*NESTED, ".array › inner › skips", ".array › inner › later", "-array › fails"],
            [IN_JEST],
        ),
        ("vitest", (4, 1, 2), [], []),
        ("jasmine", (3, 1, 1), [], []),
        ("uvu", (3, 1, 1), [], []),
        ("ava", (5, 1, 2), ["+b › b", ".a › skips", ".a › later", "+a › finds", "-a › fails"], [(None, None, None)]),
    ],
)
def test_tests_are_counted_as_the_sums_say_and_named_as_far_as_lines_do(
    sample: str, counts: tuple[int, int, int], named: list[str], said: list[object], tmp_path: Path
) -> None:
    report, results = read(tmp_path, (SAMPLES / f"{sample}.txt").read_text())
    assert report is not None
    assert (report.tests, report.failures, report.skipped) == counts
    assert names(results) == sorted(named, key=lambda name: not name.startswith("-")), "what failed is first"
    assert not results.compared
    assert [(one.message, one.path, one.line) for one in results.results if one.outcome.value == "failed"] == said
    assert results.complete is (len(named) == report.tests)
    assert len(report.failed) == sum(name.startswith("-") for name in named)


def test_sums_of_several_runs_and_of_both_streams_are_added(tmp_path: Path) -> None:
    node, jest = ((SAMPLES / f"{name}.txt").read_text() for name in ("node", "jest"))
    report, results = read(tmp_path, node + "\n" + node, jest)
    assert report is not None
    assert (report.tests, report.failures, report.skipped) == (16, 3, 6)
    assert names(results).count("-array › fails") == 3


def test_failures_are_kept_when_there_are_more_tests_than_are_kept(tmp_path: Path) -> None:
    lines = [f"    ✔ {number}\n" for number in range(MOST_RESULTS + 5000)] + ["    1) broken\n"]
    report, results = read(tmp_path, f"{''.join(lines)}\n  {MOST_RESULTS + 5000} passing (1s)\n  1 failing\n")
    assert report is not None
    assert (report.tests, report.failures, [one.name for one in report.failed]) == (25_001, 1, ["broken"])
    assert (len(results.results), results.complete) == (MOST_RESULTS, False)


def test_a_file_of_vitest_is_no_test(tmp_path: Path) -> None:
    report, results = read(
        tmp_path, " ✓ v/a.test.js  (4 tests) 5ms\n\n Test Files  1 passed (1)\n      Tests  4 passed (4)\n"
    )
    assert report is not None
    assert (report.tests, names(results)) == (4, [])


def test_marks_that_a_program_under_test_prints_are_no_tests(tmp_path: Path) -> None:
    report, results = read(tmp_path, "  a\n✔ Built\n    ✔ one\n✔ Built\n    ✔ two\n\n\n  2 passing (3ms)\n")
    assert report is not None
    assert (report.tests, report.failures) == (2, 0)
    assert (results.results, results.complete) == ([], False)


@pytest.mark.parametrize(
    "text", ["✔ Built\n  ✖ no\n", "", "  2 failed attempts\n  3 passing ships\nTests: many, 3 total\n"]
)
def test_an_output_without_sums_has_no_tests(text: str, tmp_path: Path) -> None:
    report, results = read(tmp_path, text)
    assert report is None
    assert results.results == []


def test_tap_comes_first(tmp_path: Path) -> None:
    report, results = read(tmp_path, "ok 1 - in TAP\n1..1\n  7 passing (3ms)\n")
    assert report is not None
    assert (report.tests, names(results), results.compared) == (1, ["+in TAP"], True)


def test_a_suite_of_node_18_ends_with_its_name_and_time(tmp_path: Path) -> None:
    text = "▶ a\n  ▶ b\n    ✔ one (1ms)\n  ▶ b (2ms)\n\n  ✔ two (1ms)\n▶ a (3ms)\n\nℹ tests 2\nℹ pass 2\nℹ fail 0\n"
    assert names(read(tmp_path, text)[1]) == ["+a › b › one", "+a › two"]


def test_a_test_with_tests_in_it_is_one_where_there_are_no_suites(tmp_path: Path) -> None:
    """Control: with a suite nobody knows which of the two it was."""
    text = "▶ a\n  ✔ one (1ms)\n✔ a (2ms)\n✔ b (1ms)\nℹ tests 3\nℹ suites {}\nℹ pass 3\nℹ fail 0\n"
    assert sorted(names(read(tmp_path, text.format(0))[1])) == ["+a", "+a › one", "+b"]
    report, results = read(tmp_path, text.format(1))
    assert report is not None
    assert (report.tests, names(results), results.complete) == (3, ["+a › one", "+b"], False)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "✔ ok",
        " " * 4000 + "✔",
        "  1) x",
        "▶ x",
        "✖ " + "(1ms) " * 600,
        "  ● x",
        "ℹ tests 999999999",
        "  - " + "# " * 2000,
    ],
)
def test_a_hostile_output_is_bounded(line: str, tmp_path: Path) -> None:
    count = min(25_000, 1024**2 // (len(line) + 1) + 1)
    lines = [" " * (number % 300) + line if line.startswith("▶") else line for number in range(count)]
    half = "\n".join(lines)[: 1024**2]
    began = time.process_time()
    report, results = read(tmp_path, f"{half}\n  1 passing (1ms)\n  1 failing\n{half}")
    assert time.process_time() - began < 12
    assert report is not None
    assert len(results.results) <= MOST_RESULTS
    assert len(report.failed) <= CollectedResults.MOST_FAILURES


def test_names_are_cut_and_neutralised(tmp_path: Path) -> None:
    _, results = read(tmp_path, "  \x1b[31ma\n    ✔ \u202e" + "x" * 2000 + "\n\n  1 passing (1ms)\n")
    (one,) = results.results
    assert len(one.test) <= 500
    assert not {"\x1b", "\u202e"} & set(one.test)
