"""A run with the tests that its report has, as one side of a comparison."""

from __future__ import annotations

from sandbox.checks.comparison import CheckSide
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import CheckRun
from sandbox.store import runs
from sandbox.store.home import Home
from sandbox.store.result_files import open_test_results, parse_result


def load_side(home: Home, run: CheckRun | None) -> CheckSide:
    """The tests of a run that may be one of another owner. Results that are gone or damaged are not complete; of those
    whose names are not compared there are none, as of a run without a report.
    """
    if run is None or run.report is None:
        return CheckSide(run)
    try:
        with open_test_results(home, runs.find_owner(home, run.run_id), run.run_id) as found:
            if found is not None and not found.compared:
                return CheckSide(run)
            if found is not None:
                return CheckSide(run, [parse_result(line) for line in found.lines], found.complete)
    except SandboxError as error:
        if error.code not in {ErrorCode.NOT_FOUND, ErrorCode.INTERNAL}:
            raise
    return CheckSide(run, None, complete=False)


def is_lost(side: CheckSide) -> bool:
    """Whether the run had results of tests, which `gc` removed or which are damaged."""
    return side.run is not None and side.run.report is not None and not side.complete and side.results is None
