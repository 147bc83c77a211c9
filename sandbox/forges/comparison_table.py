"""The table of a pull request that compares the tree with its base. Names of tests are guest text: inert, as code."""

from __future__ import annotations

from sandbox.forges.escape import as_code, as_prose, clean, clip_code
from sandbox.models import CheckComparison, TreeComparison
from sandbox.models.words import TestChangeKind

_ROWS, _NAME_CHARS = 30, 200
_COLUMNS = (
    TestChangeKind.NEWLY_FAILING,
    TestChangeKind.MISSING,
    TestChangeKind.FLAKY,
    TestChangeKind.STILL_FAILING,
    TestChangeKind.NEWLY_PASSING,
    TestChangeKind.NEW,
)


def describe_comparison(found: TreeComparison) -> str:
    """A sentence, a row for each check, and the tests that an answer depends on."""
    base = f"commit {as_code(found.commit)}"
    first = f"**{'No new failures' if found.no_new_failures else 'New failures'}** against {base}."
    word = "What single tests did is what the programs under test report of themselves."
    names = " | ".join(kind.value.replace("_", " ") for kind in _COLUMNS)
    head = [f"| Check | Base | Here | {names} |", "|" + "---|" * (3 + len(_COLUMNS))]
    table = "\n".join([*head, *map(_row, found.checks)])
    coverage = "\n".join(
        f"- coverage of {as_code(check.check_id)}: {check.coverage.describe()}"
        for check in found.checks
        if check.coverage is not None
    )
    listed = [
        line
        for check in found.checks
        for line in (
            *(f"- {as_code(check.check_id)}: {as_prose(reason)}" for reason in check.reasons),
            *(f"- {about}: {as_code(test, _NAME_CHARS)}" for about, test in _list_tests(check)),
        )
    ]
    more = [f"- and {len(listed) - _ROWS} more"] if len(listed) > _ROWS else []
    tests = "\n".join([*listed[:_ROWS], *more])
    return "\n\n".join(part for part in (f"{first} {word}", table, coverage, tests) if part)


def list_details(found: TreeComparison) -> tuple[list[tuple[str, str]], int]:
    """What is listed below the tables: a check and a reason, or a change and the name of a test as it is shown; and the
    number of those that are left out.
    """
    listed = [
        detail
        for check in found.checks
        for detail in (
            *((check.check_id, clean(reason).replace("\n", " ")) for reason in check.reasons),
            *((about, clip_code(test, _NAME_CHARS)) for about, test in _list_tests(check)),
        )
    ]
    return listed[:_ROWS], max(0, len(listed) - _ROWS)


def _row(check: CheckComparison) -> str:
    verdicts = [as_code(verdict.value) if verdict else "not run" for verdict in (check.before, check.after)]
    counts = [str(check.counts.get(kind, "")) for kind in _COLUMNS]
    return f"| {' | '.join([as_code(check.check_id), *verdicts, *counts])} |"


def _list_tests(check: CheckComparison) -> list[tuple[str, str]]:
    return [
        (change.change.value.replace("_", " "), change.test)
        for change in check.changes
        if change.change not in {TestChangeKind.NEW, TestChangeKind.NEWLY_PASSING}
    ]
