"""What runners of unittest print for people. The samples are theirs: Python 3.11, Django 4.2, zope.testrunner 8,
Twisted 26.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sandbox.checks.collected import MOST_RESULTS, CollectedResults
from sandbox.checks.output_results import read_output
from sandbox.models import Report

SAMPLES = Path(__file__).parents[2] / "data" / "unittest_output"
HEADS, RULE = "=" * 70, "-" * 70
BLOCK = f"{RULE}\nRan {{}} tests in 0.123s\n\n{{}}\n"
PLACE = "tests/test_sample.py"
BROKEN = ("test_breaks (tests.test_sample.Sample.test_breaks)", "error", "KeyError: 'y'", PLACE, 16)
UNEQUAL = (
    "test_fails (tests.test_sample.Sample.test_fails)",
    "failed",
    "AssertionError: {'a': 1} != {'a': 2}",
    PLACE,
    10,
)
PART = ("test_parts (tests.test_sample.Sample.test_parts) (number=1)", "failed", "AssertionError: 1 == 1", PLACE, 33)
UNEXPECTED = ("test_unexpected (tests.test_sample.Sample.test_unexpected)", "failed", None, None, None)


def read(tmp_path: Path, *texts: str) -> tuple[Report | None, CollectedResults]:
    logs = [tmp_path / f"{number}.log" for number in range(len(texts))]
    for log, text in zip(logs, texts, strict=True):
        log.write_text(text)
    results = CollectedResults()
    return read_output(logs, "unittest", ".", results, failed=True), results


def counts(report: Report | None) -> tuple[int, int, int, int]:
    """Of tests, failures, errors and skipped ones."""
    assert report is not None
    return report.tests, report.failures, report.errors, report.skipped


def failure(name: str, kind: str = "FAIL") -> str:
    return f"{HEADS}\n{kind}: {name}\n{RULE}\nTraceback (most recent call last):\nAssertionError: no\n\n"


@pytest.mark.parametrize("sample", ["plain", "verbose"])
def test_tests_are_counted_as_the_closing_block_says_and_the_failed_ones_named(sample: str, tmp_path: Path) -> None:
    report, results = read(tmp_path, "", (SAMPLES / f"{sample}.txt").read_text())
    assert counts(report) == (7, 3, 1, 2)
    found = [(one.test, one.outcome.value, one.message, one.path, one.line) for one in results.results]
    assert found == [BROKEN, UNEQUAL, PART, UNEXPECTED]
    assert not results.compared, "names are for readers"
    assert not results.complete, "what passed has no name"


@pytest.mark.parametrize(
    ("sample", "expected", "named"),
    [
        (
            "django",
            (4, 1, 1, 1),
            [
                ("test_two (app.tests.A.test_two)", "ValueError: invalid literal for int() with base 10: 'x'", 6),
                ("test_four (app.tests.B.test_four)", "AssertionError: 1 != 2", 11),
            ],
        ),
        (
            "zope",
            (5, 1, 1, 1),
            [
                ("test_two (tests.test_z.A.test_two)", "AssertionError: 1 != 2", 9),
                ("test_four (tests.test_z.B.test_four)", "ValueError: invalid literal for int() with base 10: 'x'", 14),
            ],
        ),
        ("zope-one-layer", (2, 1, 0, 0), [("test_two (tests.test_z.A.test_two)", "AssertionError: 1 != 2", 9)]),
        ("trial", (7, 3, 1, 1), []),
    ],
)
def test_other_runners_print_the_same_or_sums_of_their_own(
    sample: str, expected: tuple[int, ...], named: list[object], tmp_path: Path
) -> None:
    report, results = read(tmp_path, (SAMPLES / f"{sample}.txt").read_text())
    assert counts(report) == expected
    assert [(one.test, one.message, one.line) for one in results.results] == named


def test_totals_of_zope_take_the_place_of_their_layers_only(tmp_path: Path) -> None:
    layer = "  Ran 2 tests with 1 failures, 0 errors and 0 skipped in 0.000 seconds.\n"
    total = "Total: 4 tests, 2 failures, 0 errors and 0 skipped in 0.011 seconds.\n"
    assert counts(read(tmp_path, f"{layer}{layer}{total}{layer}")[0]) == (6, 3, 0, 0)


@pytest.mark.parametrize(
    ("closing", "expected"),
    [
        ("OK", (12, 0, 0, 0)),
        ("OK (skipped=3, expected failures=1)", (12, 0, 0, 4)),
        ("FAILED (failures=2, errors=1, skipped=4)", (12, 2, 1, 4)),
        ("FAILED (unexpected successes=1)", (12, 1, 0, 0)),
        ("FAILED (failures=20)", (20, 20, 0, 0)),
        ("NO TESTS RAN (skipped=12)", (12, 0, 0, 12)),
    ],
)
def test_each_closing_line_is_understood(closing: str, expected: tuple[int, ...], tmp_path: Path) -> None:
    """More parts of tests may fail than there are tests."""
    assert counts(read(tmp_path, BLOCK.format(12, closing))[0]) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Ran 3 tests in 0.001s\n\nOK\n",
        f"{RULE}\nRan 3 tests in 0.001s\nOK\n",
        f"{RULE}\nRan 3 tests in 0.001s\n\nOK, more or less\n",
        f"{RULE}\nRan 1234567890 tests in 0.001s\n\nOK\n",
        f"{RULE}\nRan 3 tests in 0.001s\n\nFAILED (failures={'9' * 5000})\n",
        f"{RULE}\nRan {'9' * 5000} tests in 0.001s\n\nOK\n",
        failure("test_a (m.C.test_a)"),
        BLOCK.format(0, "OK"),
        BLOCK.format(0, "NO TESTS RAN"),
        "",
    ],
)
def test_what_is_no_closing_block_counts_nothing(text: str, tmp_path: Path) -> None:
    report, results = read(tmp_path, text)
    assert (report, results.results, results.complete) == (None, [], True)


def test_runs_of_one_output_and_of_both_streams_are_added(tmp_path: Path) -> None:
    first = f"..F\n{failure('test_a (m.C.test_a)')}{BLOCK.format(3, 'FAILED (failures=1)')}"
    second = f"E.\n{failure('test_b (m.D.test_b)', 'ERROR')}{BLOCK.format(2, 'FAILED (errors=1)')}"
    report, results = read(tmp_path, f"{first}between\n{second}bye\n", first)
    assert counts(report) == (8, 2, 1, 0)
    assert [one.test.split()[0] for one in results.results] == ["test_a", "test_b", "test_a"]


@pytest.mark.parametrize(
    ("before", "after"),
    [("....", "..\n"), ("test_1 ... ok\ntest_2 ... ", "ok\ntest_3 ... ok\n")],
    ids=["dots", "names"],
)
def test_a_block_that_a_test_prints_is_no_run(before: str, after: str, tmp_path: Path) -> None:
    """A runner under test prints it within the line of a test, or after the marks of others. Its failures go, too."""
    inner = f".F\n{failure('test_inner (m.I.test_inner)')}{BLOCK.format(2, 'FAILED (failures=1)')}"
    report, results = read(tmp_path, f"{before}{inner}{after}\n{BLOCK.format(6, 'OK')}")
    assert (counts(report), results.results) == ((6, 0, 0, 0), [])


def test_heads_that_a_program_under_test_prints_are_no_failures(tmp_path: Path) -> None:
    """More of them than failed: then nobody knows which ones are tests. Control: one kind does not harm the other."""
    heads = failure("test_a (m.C.test_a)") + failure("not a test") + failure("test_b (m.C.test_b)", "ERROR")
    report, results = read(tmp_path, f"FAIL: nor this\n{heads}{BLOCK.format(3, 'FAILED (failures=1, errors=1)')}")
    assert counts(report) == (3, 1, 1, 0)
    assert [one.test for one in results.results] == ["test_b (m.C.test_b)"]


def test_the_last_error_of_a_chain_and_the_last_place_in_the_tree_are_told(tmp_path: Path) -> None:
    trace = (
        'Traceback (most recent call last):\n  File "/workspace/a.py", line 3, in f\n    g()\nValueError: first\n\n'
        "During handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n"
        '  File "/workspace/tests/test_a.py", line 7, in test\n    f()\n  File "/usr/lib/python3.11/json/__init__.py",'
        " line 9, in loads\n    raise\nm.Broken: second\nmore of it\n\nStdout:\nhello\n"
    )
    head = f"{HEADS}\nERROR: test (m.C.test)\n{RULE}\n{trace}\n"
    _, results = read(tmp_path, head + BLOCK.format(1, "FAILED (errors=1)"))
    (one,) = results.results
    assert (one.message, one.path, one.line) == ("m.Broken: second", "tests/test_a.py", 7)


@pytest.mark.parametrize(
    "line",
    [
        "9" * 5000,
        "." * 5000,
        "Ran " + "9" * 5000 + " tests in 0.001s",
        "  Ran 1 tests with " + "9" * 5000 + " failures, 0 errors and 0 skipped in 1",
        f"{HEADS}\nFAIL: " + "x" * 600,
        f"{HEADS}\nUNEXPECTED SUCCESS: x\nUNEXPECTED SUCCESS: y",
        f"{RULE}\nRan 1 tests in 0.001s\n\nFAILED (failures=1)",
        f"{HEADS}\nERROR: x\n" + '  File "/workspace/a.py", line 1, in f\nE',
        "Error in test " + "x " * 300,
        "FAILED (" + "failures=1, " * 400,
    ],
)
def test_a_hostile_output_is_bounded(line: str, tmp_path: Path) -> None:
    half = "\n".join([line] * min(200_000, 1024**2 // (len(line) + 1) + 1))[: 1024**2]
    began = time.process_time()
    report, results = read(tmp_path, f"{half}\n{BLOCK.format(3, 'FAILED (failures=1)')}{half}")
    assert time.process_time() - began < 10
    assert report is not None
    assert len(results.results) <= MOST_RESULTS
    assert len(report.failed) <= CollectedResults.MOST_FAILURES


def test_names_and_messages_are_cut_and_neutralised(tmp_path: Path) -> None:
    head = f"{HEADS}\nFAIL: \x1b[31m\u202ex{'y' * 2000}\n{RULE}\n\x1b[1mz{'z' * 3000}\n\n"
    _, results = read(tmp_path, head + BLOCK.format(1, "FAILED (failures=1)"))
    (one,) = results.results
    assert len(one.test) <= 500
    assert len(one.message or "") <= 500
    assert not {"\x1b", "\u202e"} & {*one.test, *(one.message or "")}
