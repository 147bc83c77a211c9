"""What one report file may cost. What is read from reports: tests/unit/checks/test_execute.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.checks import collected, report
from sandbox.checks.cause import FILE_FAILED
from sandbox.checks.location import find_location
from sandbox.checks.report import read_report
from sandbox.models import TestOutcome, TestResult

SMALL = '<testsuite tests="1"><testcase name="a"/></testsuite>'


def suite(inside: str) -> str:
    return f'<testsuite tests="2">{inside}</testsuite>'


def tag_of(size: int) -> str:
    return f'<testcase name="{"x" * size}"/>'


TOO_MUCH = {
    "elements": suite("<a/>" * report._ELEMENTS),
    "depth": suite("<a>" * report._DEPTH + "</a>" * report._DEPTH),
    "names-of-elements": suite("".join(f"<a{i}/>" for i in range(report._NAMES))),
    "names-of-attributes": suite("".join(f'<a b{i}=""/>' for i in range(report._NAMES))),
    "attributes-of-one-element": suite("<a" + "".join(f' b{i}=""' for i in range(report._NAMES)) + "/>"),
    "a-long-tag": suite(tag_of(report._TAG_BYTES + 2 * report._PIECE_BYTES)),
    "a-long-comment": suite(f"<!--{'x' * (report._TAG_BYTES + 2 * report._PIECE_BYTES)}-->"),
}
ENOUGH = {
    "elements": suite("<a/>" * (report._ELEMENTS - 1)),
    "depth": suite("<a>" * (report._DEPTH - 1) + "</a>" * (report._DEPTH - 1)),
    "names": suite("".join(f"<a{i}/>" for i in range(report._NAMES - 2))),
    "a-long-tag": suite(tag_of(report._TAG_BYTES - 2 * report._PIECE_BYTES)),
    "long-text": suite(f"<system-out>{'x' * (report._FILE_BYTES - 1000)}</system-out>"),
}


@pytest.mark.parametrize("content", TOO_MUCH.values(), ids=TOO_MUCH)
def test_s09_a_report_past_a_limit_of_the_parser_is_left_out_and_hides_no_other(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(content)
    assert read_report(tmp_path) is None
    (tmp_path / "b.xml").write_text(SMALL)
    found = read_report(tmp_path)
    assert found is not None
    assert found.tests == 1


@pytest.mark.parametrize("content", ENOUGH.values(), ids=ENOUGH)
def test_a_report_at_the_limits_is_read(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(content)
    found = read_report(tmp_path)
    assert found is not None
    assert found.tests == 2


EMPTY = "<testsuites>\n\t<!-- tests 0 -->\n\t<!-- duration_ms 59.4 -->\n</testsuites>\n"


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("junit.xml", EMPTY, "tests"),  # `node --test` without a test, which succeeds
        ("junit.xml", '<testsuite name="pytest" tests="0"/>', "tests"),
        (
            "lint.sarif",
            '{"version": "2.1.0", "runs": [{"tool": {"driver": {"name": "l"}}, "results": []}]}',
            "diagnostics",
        ),
        ("coverage.xml", "<coverage/>", None),
        ("other.xml", "<testsuites><coverage/></testsuites>", None),
    ],
)
def test_a_report_without_tests_is_no_missing_report(name: str, content: str, kind: str | None, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    found = read_report(tmp_path)
    assert (found and (found.tests, found.kind)) == (kind and (0, kind))


def test_a_file_that_node_could_not_load_has_a_message_that_says_so(tmp_path: Path) -> None:
    """Captured from node 18.20.4; a test that fails has no exit status of its own."""
    line = "[Error: test failed] {{ failureType: 'testCodeFailure', cause: 'test failed', code: 'ERR_TEST_FAILURE'{} }}"
    messages = []
    for more in (", exitCode: 1, signal: null", ""):
        inside = f'<failure type="testCodeFailure" message="test failed">\n{line.format(more)}\n</failure>'
        (tmp_path / "junit.xml").write_text(f'<testsuites><testcase name="/w/a.js">{inside}</testcase></testsuites>')
        found = read_report(tmp_path)
        assert found is not None
        messages.append(found.failed[0].message)
    assert messages[0] == FILE_FAILED
    assert messages[1] != FILE_FAILED


def test_a_case_without_a_suite_is_counted(tmp_path: Path) -> None:
    """As `node --test` writes them, beside suites; cases in suites are counted by their suite only."""
    cases = '<testcase name="a"/><testcase name="b"><failure/></testcase><testcase name="c"><skipped/></testcase>'
    inside = (
        '<testsuite tests="2" failures="1"><testcase name="d"/><testcase name="e"><failure/></testcase></testsuite>'
    )
    (tmp_path / "junit.xml").write_text(f"<testsuites>{cases}{inside}</testsuites>")
    found = read_report(tmp_path)
    assert found is not None
    assert (found.tests, found.failures, found.errors, found.skipped) == (5, 2, 0, 1)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("tests/test_x.py:5: AssertionError", "services/api/tests/test_x.py"),
        ("/workspace/services/api/tests/test_x.py:5: AssertionError", "services/api/tests/test_x.py"),
        ("../shared/y.py:5: AssertionError", "services/shared/y.py"),
        ("../../../etc/y.py:5: AssertionError", None),
    ],
)
def test_a_place_in_a_project_is_relative_to_the_repository(text: str, found: str | None) -> None:
    assert find_location(text, folder="services/api")[0] == found


CASES = """<testsuites><testsuite tests="5" failures="1" errors="1" skipped="1">
<testcase classname="c" name="good" time="0.25"/>
<testcase classname="c" name="bad" time="1"><failure message="no">x.py:3: AssertionError</failure></testcase>
<testcase classname="c" name="broken" time="nan"><error message="boom"/></testcase>
<testcase name="later"><skipped message="not now"/></testcase>
<testcase classname="c" name="good" time="-1"/>
</testsuite></testsuites>"""


def test_each_case_is_a_result_in_the_order_of_the_report(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(CASES)
    results = collected.CollectedResults()
    read_report(tmp_path, results=results)
    found = [(r.test, r.outcome.value, r.time_s, r.message, r.path, r.line) for r in results.results]
    assert found == [
        ("c::good", "passed", 0.25, None, None, None),
        ("c::bad", "failed", 1.0, "no", "x.py", 3),
        ("c::broken", "error", None, "boom", None, None),
        ("later", "skipped", None, None, None, None),
        ("c::good", "passed", None, None, None, None),
    ]
    assert results.complete


def test_a_file_that_cannot_be_read_makes_the_results_incomplete(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(CASES)
    (tmp_path / "b.xml").write_text("<testsuite")
    results = collected.CollectedResults()
    assert read_report(tmp_path, results=results) is not None
    assert not results.complete


@pytest.mark.parametrize("encoding", ["utf-8", "iso-8859-1"])
@pytest.mark.parametrize("before", [0, 1, report._PIECE_BYTES - 200, 3 * report._PIECE_BYTES])
def test_characters_that_xml_forbids_lose_no_result(before: int, encoding: str, tmp_path: Path) -> None:
    """As libxkbcommon's tests print them, and Meson writes them. Control: what XML allows stays."""
    printed = "".join(map(chr, range(32))).replace("\r", "") + "\N{LATIN SMALL LETTER E WITH ACUTE}"
    failed = f'<testcase name="a"><failure message="{printed[11:]}">{printed}</failure></testcase><testcase name="b"/>'
    suites = f"<testsuites><testsuite>{' ' * before}{failed}</testsuite></testsuites>"
    text = f'<?xml version="1.0" encoding="{encoding}"?>{suites}'
    (tmp_path / "a.xml").write_bytes(text.encode(encoding))
    results = collected.CollectedResults()
    found = read_report(tmp_path, results=results)
    assert found is not None
    assert (found.tests, found.failures, results.complete) == (2, 1, True)
    assert found.failed[0].message == "?" * 20 + "\N{LATIN SMALL LETTER E WITH ACUTE}"


def test_a_report_in_utf_16_is_read(tmp_path: Path) -> None:
    """Each of its letters has a byte that no other encoding may have."""
    text = (
        '<?xml version="1.0" encoding="utf-16"?><testsuite><testcase name="\N{GREEK SMALL LETTER ALPHA}"/></testsuite>'
    )
    (tmp_path / "a.xml").write_bytes(text.encode("utf-16"))
    results = collected.CollectedResults()
    assert read_report(tmp_path, results=results) is not None
    assert results.complete


def test_more_tests_or_text_than_are_kept_make_the_results_incomplete(tmp_path: Path) -> None:
    results = collected.CollectedResults()
    for _ in range(collected.MOST_RESULTS):
        results.add(TestResult(test="x" * 10, outcome=TestOutcome.PASSED))
    assert results.complete
    results.add(TestResult(test="y", outcome=TestOutcome.PASSED))
    assert (len(results.results), results.complete) == (collected.MOST_RESULTS, False)
    long = collected.CollectedResults()
    long.add(TestResult(test="x" * 9 * 1024**2, outcome=TestOutcome.PASSED))
    assert (long.results, long.complete) == ([], False)


@pytest.mark.parametrize(
    ("counts", "failed"),
    [
        ('tests="2"', 1),
        ('tests="2" failures="0"', 1),
        ('tests="2" errors="1"', 1),
        ('tests="1" failures="0"', 0),
        ('tests="9" failures="4"', 4),
    ],
    ids=["none", "too few", "of another kind", "repeated", "more than cases"],
)
def test_no_fewer_tests_failed_than_have_failed_cases(counts: str, failed: int, tmp_path: Path) -> None:
    cases = '<testcase name="a"><failure message="no"/></testcase><testcase name="b"/>'
    (tmp_path / "r.xml").write_text(f"<testsuite {counts}>{cases}</testsuite>")
    found = read_report(tmp_path)
    assert found is not None
    assert (found.failures + found.errors, len(found.failed)) == (failed, 1)


def test_a_suite_without_counts_has_those_of_its_cases(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(
        "<testsuite><testcase name='a'/><testcase name='b'><failure/></testcase></testsuite>"
    )
    found = read_report(tmp_path)
    assert found is not None
    assert (found.tests, found.failures) == (2, 1)


CTEST = """<testsuite tests="1" failures="1"><testcase name="unit" classname="unit" time="0.1">
<failure message="Failed"/><system-out>start\nunit.cpp:7: expected 3, got 4\nend</system-out></testcase></testsuite>"""
GO = """<testsuites><testsuite tests="1" failures="1"><testcase classname="pkg" name="TestSum">
<failure message="Failed" type="">=== RUN   TestSum
    sum_test.go:12: got 3, want 4
--- FAIL: TestSum (0.00s)</failure></testcase></testsuite></testsuites>"""


@pytest.mark.parametrize(
    ("text", "said", "place"),
    [
        (CTEST, "unit.cpp:7: expected 3, got 4", ("unit.cpp", 7)),
        (GO, "sum_test.go:12: got 3, want 4", ("sum_test.go", 12)),
    ],
    ids=["ctest", "gotestsum"],
)
def test_a_message_that_says_nothing_is_replaced_by_what_the_test_printed(
    text: str, said: str, place: tuple[str, int], tmp_path: Path
) -> None:
    (tmp_path / "a.xml").write_text(text)
    found = read_report(tmp_path)
    assert found is not None
    (failed,) = found.failed
    assert (failed.message, (failed.path, failed.line)) == (said, place)
