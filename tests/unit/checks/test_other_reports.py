"""Reports that are not JUnit: TAP, SARIF, what compilers and linters write, Rust's tests. Samples of the real tools."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path

import pytest

from devtools.host_speed import slowness
from sandbox.checks import output_results, report
from sandbox.checks.cargo_output import read_cargo
from sandbox.checks.collected import MOST_CHARS, MOST_RESULTS, CollectedResults, take_kept
from sandbox.checks.diagnostics import UnreadableReport, read_json, read_lines
from sandbox.checks.node_output import _RunnerOutput
from sandbox.checks.output_lines import LINE_BYTES, ReadingTime, read_lines_of
from sandbox.checks.output_results import read_output
from sandbox.checks.report import read_report
from sandbox.checks.tap import TapReader
from sandbox.models import TestOutcome, TestResult

Found = list[tuple[str, str, str | None, str | None, int | None]]


def shown(results: list[TestResult]) -> Found:
    return [(one.test, one.outcome.value, one.message, one.path, one.line) for one in results]


TAP = """\
TAP version 13
1..5
ok 1 - reads
not ok 2 - writes
#   Failed test 'writes'
#   at t/write.t line 12.
#          got: '1'
    ok 1 - indented
ok 3 # SKIP no network
not ok 4 - later # TODO not yet
not ok 5 - adds
  ---
  message: "expected 3, got 4"
  at: test/add.js:7:3
  ...
"""


def test_tap_of_a_file_or_of_output() -> None:
    reader = TapReader()
    assert shown(list(reader.read(TAP.splitlines()))) == [
        ("reads", "passed", None, None, None),
        ("writes", "failed", "at t/write.t line 12.", "t/write.t", 12),
        ("3", "skipped", None, None, None),
        ("later", "skipped", None, None, None),
        ("adds", "failed", 'message: "expected 3, got 4"', "test/add.js", 7),
    ]
    assert reader.complete
    for cut in ("1..9\nok 1\n", "ok 1\nBail out! no database\n"):
        reader = TapReader()
        assert len(list(reader.read(cut.splitlines()))) == 1
        assert not reader.complete


SARIF = {
    "version": "2.1.0",
    "runs": [
        {
            "results": [
                {
                    "ruleId": "-Wuninitialized",
                    "level": "error",
                    "message": {"text": "'x' is used uninitialized"},
                    "locations": [
                        {
                            "physicalLocation": {
                                "artifactLocation": {"uri": "src/a%20b.c"},
                                "region": {"startLine": 3},
                            }
                        }
                    ],
                },
                {"ruleId": "note", "level": "warning", "message": {"text": "not an error"}},
            ]
        }
    ],
}
RUFF = [{"code": "F401", "filename": "/workspace/a.py", "location": {"row": 1, "column": 8}, "message": "unused"}]
ESLINT = [
    {
        "filePath": "/workspace/src/a.js",
        "messages": [
            {"ruleId": "no-undef", "severity": 2, "message": "'x' is not defined.", "line": 4},
            {"ruleId": "semi", "severity": 1, "message": "Missing semicolon.", "line": 5},
        ],
    }
]
GCC = [
    {"kind": "error", "message": "expected ';'", "locations": [{"caret": {"file": "a.c", "line": 2}}]},
    {"kind": "warning", "message": "unused", "locations": [{"caret": {"file": "a.c", "line": 1}}]},
]
MYPY = (
    '{"file": "a.py", "line": 3, "column": 4, "message": "Incompatible types", "hint": null, '
    '"code": "assignment", "severity": "error"}\n'
    '{"file": "a.py", "line": 3, "message": "note", "code": "misc", "severity": "note"}\n'
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (json.dumps(SARIF), ("src/a b.c: -Wuninitialized", "src/a b.c", 3, "-Wuninitialized")),
        (json.dumps(RUFF), ("a.py: F401", "a.py", 1, "F401")),
        (json.dumps(ESLINT), ("src/a.js: no-undef", "src/a.js", 4, "no-undef")),
        (json.dumps(GCC), ("a.c: expected ';'", "a.c", 2, "error")),
        (MYPY, ("a.py: assignment", "a.py", 3, "assignment")),
    ],
    ids=["sarif", "ruff", "eslint", "gcc", "mypy"],
)
def test_errors_of_compilers_and_linters(text: str, expected: tuple[str, str, int, str]) -> None:
    (found,) = read_json(text.encode())
    assert (found.test, found.path, found.line, found.rule) == expected


LINES = """\
In file included from a.c:1:
src/a.c:12:5: error: 'y' undeclared (first use in this function)
src/b.cpp:7:3: error: unused variable 'z' [-Werror=unused-variable]
src/c.c:3:10: fatal error: nothing.h: No such file or directory
a.py:3: error: Incompatible types in assignment  [assignment]
src/x.ts(3,5): error TS2322: Type 'string' is not assignable to type 'number'.
/workspace/src/main/java/App.java:5: error: ';' expected
./main.go:5:2: undefined: foo
src/a.c:13:1: warning: unused
error: aborting
"""


def test_lines_of_compilers() -> None:
    found = [(one.test, one.line) for one in read_lines(LINES.splitlines())]
    assert found == [
        ("src/a.c: 'y' undeclared (first use in this function)", 12),
        ("src/b.cpp: unused-variable", 7),
        ("src/c.c: nothing.h: No such file or directory", 3),
        ("a.py: assignment", 3),
        ("src/x.ts: TS2322", 3),
        ("src/main/java/App.java: ';' expected", 5),
        ("main.go: undefined: foo", 5),
    ]


CARGO = """\
running 3 tests
test tests::adds ... ok
test tests::breaks ... FAILED
test tests::slow ... ignored

failures:

---- tests::breaks stdout ----

thread 'tests::breaks' panicked at src/lib.rs:17:9:
assertion `left == right` failed
  left: 1
 right: 2
note: run with `RUST_BACKTRACE=1`

failures:
    tests::breaks
"""


def test_the_tests_of_rust() -> None:
    assert shown(list(read_cargo(CARGO.splitlines()))) == [
        ("tests::adds", "passed", None, None, None),
        (
            "tests::breaks",
            "failed",
            "assertion `left == right` failed\n  left: 1\n right: 2",
            "src/lib.rs",
            17,
        ),
        ("tests::slow", "skipped", None, None, None),
    ]


def test_files_of_several_formats_are_one_report(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(
        "<testsuite><testcase name='one'/><testcase name='two'><failure/></testcase></testsuite>"
    )
    (tmp_path / "b.tap").write_text(TAP)
    (tmp_path / "ruff.json").write_text(json.dumps(RUFF))
    results = CollectedResults()
    found = read_report(tmp_path, results=results)
    assert found is not None
    assert (found.tests, found.failures, found.skipped, found.kind) == (8, 4, 2, "tests")
    assert [one.test for one in results.results][-1] == "a.py: F401"
    assert results.complete
    (tmp_path / "c.json").write_text('{"coverage": 1}')
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "d.t").write_text("1..1\nok 1 - of perl\n")
    results = CollectedResults()
    assert read_report(tmp_path, results=results) is not None
    assert results.complete
    assert results.results[-1].test == "t/d.t: of perl"
    (tmp_path / "e.json").write_text("[" * 300_001)
    results = CollectedResults()
    assert read_report(tmp_path, results=results) is not None
    assert not results.complete


def test_output_is_read_in_the_format_that_the_profile_names(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for form, text, tests, kind in (
        ("tap", TAP, 5, "tests"),
        ("cargo", CARGO, 3, "tests"),
        ("diagnostics", LINES, 7, "diagnostics"),
    ):
        log.write_text(text)
        results = CollectedResults()
        found = read_output([log, log], form, ".", results, failed=True)  # type: ignore[arg-type]  # of a loop
        assert found is not None
        assert (found.tests, found.kind) == (2 * tests, kind)
    log.write_text("nothing of that kind\n")
    assert read_output([log], "tap", ".", CollectedResults(), failed=True) is None


RUST = Path(__file__).parents[2] / "data" / "rust"
"""Output of cargo, rustc and clippy 1.95.0."""


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (
            "build.txt",
            [
                ("src/main.rs: E0432", "unresolved import `std::nowhere`", 2),
                ("src/main.rs: E0308", "mismatched types", 7),
                ("src/main.rs: E0425", "cannot find function `missing` in this scope", 8),
                ("src/main.rs: E0308", "mismatched types", 9),
            ],
        ),
        ("borrow.txt", [("src/main.rs: E0382", "borrow of moved value: `s`", 12)]),
        (
            "clippy.txt",
            [
                ("src/main.rs: unused_variables", "unused variable: `y`", 8),
                ("src/main.rs: dead_code", "function `unused` is never used", 4),
                ("src/other.rs: clippy::approx_constant", "approximate value of `f{32, 64}::consts::PI` found", 2),
                ("src/other.rs: clippy::eq_op", "equal expressions as operands to `==`", 3),
            ],
        ),
        (
            "test.txt",
            [("src/other.rs: expected expression, found `}`", "expected expression, found `}`", 3)],
        ),
    ],
)
def test_errors_of_rust(sample: str, expected: list[tuple[str, str, int]]) -> None:
    found = list(read_lines((RUST / sample).read_text().splitlines()))
    assert [(one.test, one.message, one.line) for one in found] == expected
    assert all(one.rule for one in found)


def test_an_error_of_rust_ends_with_the_output_or_the_next_one_and_needs_a_place() -> None:
    head, place = "error[E0308]: mismatched types", "  --> a.rs:1:2"
    for text, count in (
        (f"{head}\n{place}", 1),
        (f"{head}\n{place}\n{head}\n{place}", 2),
        (f"error: two\nlines of text\n{place}", 1),
        (f"{head}\n\n{place}", 0),
        (f"{head}\nwarning: unused\n{place}", 0),
        (f"{head}\n" + "x\n" * 300 + place, 0),
        ("error: could not compile `demo` (lib) due to 2 previous errors", 0),
    ):
        assert len(list(read_lines(text.splitlines()))) == count, text


def test_tests_of_rust_that_do_not_compile_are_named_by_their_errors(tmp_path: Path) -> None:
    out, err = tmp_path / "stdout", tmp_path / "stderr"
    err.write_text((RUST / "test.txt").read_text())
    out.write_text("")
    found = read_output([out, err], "cargo", ".", CollectedResults(), failed=True)
    assert found is not None
    assert (found.kind, [one.line for one in found.failed]) == ("diagnostics", [3])
    assert read_output([out, err], "cargo", ".", CollectedResults(), failed=False) is None, "it passed"
    out.write_text(CARGO)
    found = read_output([out, err], "cargo", ".", CollectedResults(), failed=True)
    assert found is not None
    assert (found.kind, found.tests) == ("tests", 3), "what a test prints is no error of a compiler"


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 300_001,
        b"[" * 100_000,
        b"[" + b"1," * 300_000 + b"1]",
        b'{"runs": 5}',
        b'{"runs": [{"results": [{"level": "error", "locations": 3}]}]}',
        b'[{"messages": [7]}]',
        b"\xff\xfe",
        b"{}",
        b"null",
        b" " * (8 * 1024**2 + 1),
    ],
    ids=["many", "deep", "values", "no-runs", "no-locations", "no-message", "bytes", "empty", "null", "long"],
)
def test_json_that_is_no_report_or_past_a_limit_is_refused(content: bytes) -> None:
    with pytest.raises(UnreadableReport):
        read_json(content)


def test_names_are_cut_and_neutralised() -> None:
    (one,) = TapReader().read(["not ok 1 - \x1b[31m" + "x" * 9000])
    assert "\x1b" not in one.test
    assert len(one.test) <= 500


Lines = Iterable[str]
BLANKS = " " * (LINE_BYTES - 20)
Read = Callable[[Iterator[str]], Iterable[TestResult]]


def many(*lines: str, times: int = 2000) -> Lines:
    return chain.from_iterable(repeat(lines, times))


def of_rust(times: int) -> Lines:
    return chain(["test a ... FAILED", "---- a stdout ----"], many("", times=times))


SLOW: dict[str, tuple[Read, Callable[[], Lines], int]] = {
    "blanks below a test of TAP": (TapReader().read, lambda: many("not ok 1 - x", BLANKS + "x", times=500), 500),
    "empty lines of a test of Rust": (read_cargo, lambda: of_rust(times=500_000), 1),
    "blanks in an error": (read_lines, lambda: many(f"a:1: error: {BLANKS}x", times=2000), 2000),
    "a bracket in an error": (
        read_lines,
        lambda: many(f"a:1: error: {BLANKS[:-100]}[{'a' * 100}", times=2000),
        2000,
    ),
}


@pytest.mark.parametrize(("read", "lines", "count"), SLOW.values(), ids=SLOW)
def test_s188_hostile_lines_are_read_in_linear_time(read: Read, lines: Callable[[], Lines], count: int) -> None:
    """Without the mends: seven seconds for the third, more for the others, hours for the first."""
    began = time.process_time()
    assert sum(1 for _ in read(iter(lines()))) == count
    assert time.process_time() - began < 2.5 * slowness()


def test_s188_a_report_of_tap_with_lines_of_blanks_is_read_at_once(tmp_path: Path) -> None:
    """Without the mend: 3 hours."""
    (tmp_path / "a.tap").write_text(f"not ok 1\n{BLANKS}x\n" * 200)
    began = time.process_time()
    found = read_report(tmp_path)
    assert time.process_time() - began < 10 * slowness()
    assert found is not None
    assert {one.message for one in found.failed} == {"x"}


def test_s188_what_is_said_once_of_a_file_is_not_spelled_out_for_each_error() -> None:
    """eslint's path stands beside its list of errors; a list in its place has two million characters to spell out."""
    errors = [{"severity": 2, "message": str(number)} for number in range(10_000)]
    content = json.dumps([{"filePath": ["x" * 2_000_000], "messages": errors}]).encode()
    began = time.process_time()
    assert len(read_json(content)) == 10_000
    assert time.process_time() - began < 5 * slowness()


def peak_of(read: Callable[[], object]) -> int:
    """The memory in bytes that this takes at a time, beside what it was given."""
    tracemalloc.start()
    try:
        read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def exhaust(results: Iterable[TestResult]) -> None:
    for _ in results:
        pass


MIB = 1024**2
LARGE: dict[str, tuple[Callable[[], object], int]] = {
    "empty lines below a test of TAP": (
        lambda: exhaust(TapReader().read(chain(["not ok 1 - x"], many("", times=60_000)))),
        MIB // 5,
    ),
    "empty lines of a test of Rust": (lambda: exhaust(read_cargo(of_rust(times=60_000))), MIB // 5),
    "tests of Rust": (lambda: exhaust(read_cargo(f"test t{number} ... ok" for number in range(60_000))), 8 * MIB),
}


@pytest.mark.parametrize(("read", "most"), LARGE.values(), ids=LARGE)
def test_s190_what_readers_of_output_keep_is_bounded(read: Callable[[], object], most: int) -> None:
    assert peak_of(read) < most


PERCENT = {"physicalLocation": {"artifactLocation": {"uri": "%ff" * 1_000_000}}}


def test_s190_tests_of_node_that_have_others_in_them_are_bounded_as_the_others() -> None:
    """Control: each sum of no suites added as many again."""
    found = _RunnerOutput()
    for _ in range(3):
        for line in many("▶ a", "✔ a", times=2 * MOST_RESULTS):
            found.take(line)
        found.take("\N{INFORMATION SOURCE} suites 0")
    assert len(found.named) == 2 * MOST_RESULTS + 1


def test_s190_a_long_line_of_a_report_of_tap_is_not_kept(tmp_path: Path) -> None:
    """Control: it takes 4 bytes for each character, several times."""
    (tmp_path / "a.tap").write_text("not ok " + "x" * 2 * MIB + "\N{GRINNING FACE}\n# why\n")
    found = read_report(tmp_path)
    assert found is not None
    assert [one.message for one in found.failed] == ["why"]
    assert peak_of(lambda: read_report(tmp_path)) < 8 * MIB


@pytest.mark.parametrize(
    "content",
    [
        b"[]\n" + b"1e1\n" * 1_000_000,
        b"\n" * 8 * MIB,
        json.dumps({"runs": [{"results": [{"level": "error", "locations": [PERCENT]}]}]}).encode(),
    ],
    ids=["scalars", "empty lines", "an escaped path"],
)
def test_s190_json_in_lines_or_escaped_takes_no_more_memory_than_its_text(content: bytes) -> None:
    def read() -> None:
        with suppress(UnreadableReport):
            read_json(content)

    assert peak_of(read) < 4 * len(content)


def test_s190_results_are_taken_up_to_a_number_and_a_size() -> None:
    short = TestResult(test="x", outcome=TestOutcome.PASSED)
    long = short.model_copy(update={"test": "x" * (MOST_CHARS // 4)})
    for one, kept in ((short, MOST_RESULTS), (long, 4)):
        results = CollectedResults()
        for result in take_kept(repeat(one)):
            results.add(result)
        assert (len(results.results), results.complete) == (kept, False)
    assert take_kept([short]) == [short]


def test_s188_the_time_for_one_output_is_bounded_and_what_was_not_read_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    log.write_text(TAP)
    monkeypatch.setattr(output_results, "ReadingTime", lambda: ReadingTime(-1.0))
    results = CollectedResults()
    assert read_output([log], "tap", ".", results, failed=True) is None
    assert not results.complete
    assert "not read to its end" in results.note


def test_s188_the_time_for_the_reports_of_a_run_is_bounded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.tap").write_text(TAP)
    monkeypatch.setattr(report, "ReadingTime", lambda: ReadingTime(-1.0))
    results = CollectedResults()
    assert read_report(tmp_path, results=results) is None
    assert not results.complete
    assert "not read to their end" in results.note


def test_s188_reading_time_is_that_of_the_work_on_the_lines() -> None:
    left = ReadingTime(0.05)
    for _line in left.limit(repeat("")):
        sum(range(1000))
    assert left.is_over
    left = ReadingTime()
    assert list(left.limit(["a", "b"])) == ["a", "b"]
    assert not left.is_over


def test_lines_of_a_log_are_cut_and_without_sequences(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"a\r\n\x1b[31mb\n" + b"c" * (LINE_BYTES + 1))
    assert list(read_lines_of(log)) == ["a", "b", "c" * LINE_BYTES, "c"]
