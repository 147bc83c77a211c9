"""Use-case: read what a run's report says of each test, a page at a time."""

from __future__ import annotations

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.test_results import TestResult, TestResults
from sandbox.models.words import BAD_OUTCOMES
from sandbox.store import runs
from sandbox.store.home import Home
from sandbox.store.result_files import ResultFile, open_test_results, parse_result

MOST_ON_A_PAGE = 1000


def read_test_results(
    home: Home, run_id: str, *, failed_only: bool = False, cursor: int = 0, limit: int = MOST_ON_A_PAGE
) -> TestResults:
    """A page of the tests of a run of any task or repository, from the `cursor`-th on, at most `limit`.

    Raises: `not_found` for an unknown run, for one without results of tests, and if the process that ran it was killed;
    `conflict` while it runs;
    `invalid_input` for the page.
    """
    if cursor < 0 or not 1 <= limit <= MOST_ON_A_PAGE:
        raise SandboxError(
            ErrorCode.INVALID_INPUT, f"A cursor is not negative, and a page has 1 to {MOST_ON_A_PAGE} tests"
        )
    owner = runs.find_owner(home, run_id)
    record = runs.find_ended_run(home, owner, run_id, without=", so it has no test results yet")
    with open_test_results(home, owner, run_id) as found:
        if found is None:
            if record.results_lost:
                raise SandboxError(
                    ErrorCode.NOT_FOUND,
                    f"The test results of {run_id} of '{record.check_id}' were lost as they were read",
                    details="; ".join(record.notes),
                    hint=f"Its output: `sandbox check log {owner} {run_id}`.",
                )
            raise SandboxError(
                ErrorCode.NOT_FOUND,
                f"{run_id} of '{record.check_id}' has no test results",
                hint="A check has them if it writes JUnit XML to /report, or if its profile has [check.results]: "
                "docs/profiles.md. Its output: " + f"`sandbox check log {owner} {run_id}`.",
            )
        total, page = _read_page(found, failed_only, cursor, limit)
    after = cursor + len(page)
    return TestResults(
        run_id=run_id,
        check_id=record.check_id,
        source=found.source,
        total=total,
        results=tuple(page),
        next_cursor=after if after < total else None,
        complete=found.complete and not record.results_lost,
    )


def _read_page(found: ResultFile, failed_only: bool, cursor: int, limit: int) -> tuple[int, list[TestResult]]:
    total, page = 0, list[TestResult]()
    for line in found.lines:
        is_on_page = cursor <= total < cursor + limit
        if failed_only or is_on_page:
            result = parse_result(line)
            if failed_only and result.outcome not in BAD_OUTCOMES:
                continue
            if is_on_page:
                page.append(result)
        total += 1
    return total, page
