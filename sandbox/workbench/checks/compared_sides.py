"""A run with the tests that its report has, as one side of a comparison."""

from __future__ import annotations

from sandbox.checks.comparison import CheckSide
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import CheckRun
from sandbox.store import runs
from sandbox.store.home import Home
from sandbox.store.result_files import open_test_results, parse_result


def load_side(home: Home, run: CheckRun | None) -> CheckSide:
    """The tests of a run that may be one of another owner. Results that are gone or damaged are not complete, nor are
    those that were lost as they were read, also if that left no report; of those whose names are not compared there are
    none, as of a run without a report.
    """
    if run is None:
        return CheckSide()
    without = CheckSide(run, complete=not run.results_lost)
    if run.report is None:
        return without
    try:
        with open_test_results(home, runs.find_owner(home, run.run_id), run.run_id) as found:
            if found is not None and not found.compared:
                return without
            if found is not None:
                results = [parse_result(line) for line in found.lines]
                return CheckSide(run, results, found.complete and not run.results_lost)
    except SandboxError as error:
        if error.code not in {ErrorCode.NOT_FOUND, ErrorCode.INTERNAL}:
            raise
    return CheckSide(run, None, complete=False)


def is_lost(side: CheckSide) -> bool:
    """Whether the run had results of tests, which `gc` removed or which are damaged: another run gives them back. One
    that lost results as they were read would lose them again.
    """
    run = side.run
    if run is None or run.report is None or run.results_lost:
        return False
    return not side.complete and side.results is None
