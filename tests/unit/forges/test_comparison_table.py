"""The table of a pull request that compares a tree with its base."""

from __future__ import annotations

import pytest

from sandbox.forges.comparison_table import describe_comparison
from sandbox.models import (
    CheckComparison,
    Coverage,
    CoverageChange,
    TestChange,
    TestChangeKind,
    TreeComparison,
    Verdict,
)


def compared(*changes: tuple[str, TestChangeKind], reasons: tuple[str, ...] = ()) -> TreeComparison:
    counts: dict[TestChangeKind, int] = {}
    for _, kind in changes:
        counts[kind] = counts.get(kind, 0) + 1
    check = CheckComparison(
        check_id="test",
        before=Verdict.FAILED,
        after=Verdict.FAILED,
        by="tests",
        counts=counts,
        changes=tuple(TestChange(test=test, change=kind) for test, kind in changes),
        reasons=reasons,
    )
    return TreeComparison(against="base", commit="c" * 40, tree="d" * 40, checks=(check,), no_new_failures=not reasons)


def test_counts_stand_in_a_table_and_tests_in_a_list() -> None:
    text = describe_comparison(
        compared(
            ("a", TestChangeKind.NEWLY_FAILING), ("b", TestChangeKind.STILL_FAILING), reasons=("1 test fails newly",)
        )
    )
    assert "**New failures** against commit" in text
    assert "| `test` | `failed` | `failed` | 1 |  |  | 1 |  |  |" in text
    assert "- newly failing: `a`" in text
    assert "- `test`: 1 test fails newly" in text
    assert "report of themselves" in text


def test_the_coverage_of_both_trees_is_shown() -> None:
    found = compared(("a", TestChangeKind.STILL_FAILING))
    covered = [Coverage(path="lcov.info", lines_covered=lines, lines_total=8) for lines in (6, 5)]
    check = found.checks[0].model_copy(update={"coverage": CoverageChange(before=covered[0], after=covered[1])})
    assert "coverage" not in describe_comparison(found)
    text = describe_comparison(found.model_copy(update={"checks": (check,)}))
    assert "- coverage of `test`: 75.00 % -> 62.50 % (-12.50)" in text


def test_many_tests_are_cut_and_counted() -> None:
    text = describe_comparison(compared(*((f"t{n}", TestChangeKind.STILL_FAILING) for n in range(80))))
    assert "**No new failures**" in text
    assert "- and 50 more" in text


@pytest.mark.parametrize("name", ["`", "a`b``c", "[x](https://e.example)", "@all", "<!-- x -->", "a\n# b", "|"])
def test_a_name_is_code_on_one_line(name: str) -> None:
    lines = describe_comparison(compared((name, TestChangeKind.NEWLY_FAILING))).splitlines()
    assert lines[-1].startswith("- newly failing: `")
    assert lines[-1].endswith("`")
