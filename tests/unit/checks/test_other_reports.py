"""Reports that are not JUnit: TAP, SARIF, what compilers and linters write, Rust's tests. Samples of the real tools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.checks.cargo_output import read_cargo
from sandbox.checks.collected import CollectedResults
from sandbox.checks.diagnostics import UnreadableReport, read_json, read_lines
from sandbox.checks.output_results import read_output
from sandbox.checks.report import read_report
from sandbox.checks.tap import TapReader
from sandbox.models import TestResult

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
    assert shown(read_cargo(CARGO.splitlines())) == [
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
