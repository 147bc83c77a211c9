"""Pages of the tests of a run: which there are, what is missing, and what a damaged file is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.checks.comparison import WHOLE
from sandbox.checks.repeated import add_up
from sandbox.errors import ErrorCode
from sandbox.models import Report, TestOutcome, TestResult, Verdict
from sandbox.store.home import Home
from sandbox.store.liveness import LiveController
from sandbox.store.records import save_run
from sandbox.store.result_files import save_test_results
from sandbox.workbench.checks.compared_sides import is_lost, load_side
from sandbox.workbench.checks.result_pages import read_test_results
from tests.unit.conftest import refused
from tests.unit.store.test_verdicts import made as run_made

OWNER, RUN = "task-1", "run-" + "0" * 31 + "1"
OTHER = RUN[:-1] + "2"
RESULTS = [
    TestResult(test=f"t{i}", outcome=TestOutcome.FAILED if i % 10 == 0 else TestOutcome.PASSED, time_s=0.5)
    for i in range(100)
]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.logs(OWNER).mkdir(parents=True)
    save_run(home, OWNER, run_made(Verdict.FAILED, 1, run_id=RUN))
    return home


def test_pages_follow_each_other_and_name_each_test_once(home: Home) -> None:
    save_test_results(home.logs(OWNER), RUN, "junit", RESULTS, complete=True)
    first = read_test_results(home, RUN, limit=60)
    assert (first.total, first.next_cursor, first.source, first.complete) == (100, 60, "junit", True)
    last = read_test_results(home, RUN, cursor=60, limit=60)
    assert last.next_cursor is None
    assert [*first.results, *last.results] == RESULTS
    assert read_test_results(home, RUN, cursor=100).results == ()


def test_failed_tests_have_pages_of_their_own(home: Home) -> None:
    save_test_results(home.logs(OWNER), RUN, "lines", RESULTS, complete=False)
    page = read_test_results(home, RUN, failed_only=True, cursor=3, limit=5)
    assert [one.test for one in page.results] == ["t30", "t40", "t50", "t60", "t70"]
    assert (page.total, page.next_cursor, page.complete) == (10, 8, False)


@pytest.mark.parametrize("compared", [True, False])
def test_names_that_a_runner_prints_for_people_are_shown_and_not_compared(compared: bool, home: Home) -> None:
    """jest names a test only if it failed, and mocha's suites are whatever stands above. The control: other names."""
    save_test_results(home.logs(OWNER), RUN, "output", RESULTS, complete=False, compared=compared)
    assert read_test_results(home, RUN).total == 100
    run = run_made(Verdict.FAILED, 1, run_id=RUN, report=Report(tests=100, failures=10, errors=0, skipped=0, failed=()))
    side = load_side(home, run)
    assert (side.results is not None) is compared
    assert not is_lost(side)
    assert set(add_up([side])) == ({one.test for one in RESULTS} if compared else {WHOLE})


@pytest.mark.parametrize("compared", [True, False])
def test_results_that_were_lost_as_they_were_read_are_not_complete(compared: bool, home: Home) -> None:
    """Also of names that are not compared: what was lost may have been names that are."""
    save_test_results(home.logs(OWNER), RUN, "output", RESULTS, complete=True, compared=compared)
    report = Report(tests=100, failures=10, errors=0, skipped=0, failed=())
    for is_lost_at_reading in (True, False):
        run = run_made(Verdict.FAILED, 1, run_id=RUN, report=report, results_lost=is_lost_at_reading)
        side = load_side(home, run)
        assert (side.results is not None, side.complete) == (compared, not is_lost_at_reading)
        assert not is_lost(side), "another run would lose them again"
        save_run(home, OWNER, run)
        assert read_test_results(home, RUN).complete is not is_lost_at_reading


def test_a_run_that_lost_all_its_results_says_so(home: Home) -> None:
    note = "its output was not read to its end"
    save_run(home, OWNER, run_made(Verdict.FAILED, 1, run_id=RUN, results_lost=True, notes=(note,)))
    with refused(ErrorCode.NOT_FOUND) as caught:
        read_test_results(home, RUN)
    assert "were lost" in caught.value.brief
    assert caught.value.details == note
    assert "check log" in (caught.value.hint or "")


def test_what_is_not_there_says_why(home: Home) -> None:
    with refused(ErrorCode.NOT_FOUND) as caught:
        read_test_results(home, RUN)
    assert "docs/profiles.md" in (caught.value.hint or "")
    with refused(ErrorCode.NOT_FOUND):
        read_test_results(home, OTHER)
    controller = LiveController(home.liveness)
    running = f"run-{controller.new_id()}"
    (home.logs(OWNER) / f"{running}.stdout").touch()
    with refused(ErrorCode.CONFLICT) as caught:
        read_test_results(home, running)
    assert f"check wait {running}" in (caught.value.hint or "")
    controller.end()
    with refused(ErrorCode.NOT_FOUND) as caught:
        read_test_results(home, running)
    assert "was killed" in caught.value.brief
    with refused(ErrorCode.INVALID_INPUT):
        read_test_results(home, RUN, cursor=-1)
    for limit in (0, 1001):
        with refused(ErrorCode.INVALID_INPUT):
            read_test_results(home, RUN, limit=limit)


HEAD = json.dumps({"source": "junit", "complete": True})


@pytest.mark.parametrize("text", ["", "{}\n", "[]\n", "no json\n", f"{HEAD}\n{{}}\n"])
def test_a_damaged_file_is_an_error_and_no_traceback(home: Home, text: str) -> None:
    (home.logs(OWNER) / f"{RUN}.tests").write_text(text)
    with refused(ErrorCode.INTERNAL):
        read_test_results(home, RUN)
