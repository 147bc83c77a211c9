"""Verdicts of a tree compared with those of another one, test by test. What tests said is guest text."""

from __future__ import annotations

from typing import Literal

from sandbox.models.artifact_lists import Coverage
from sandbox.models.ids import CheckId, ObjectId
from sandbox.models.model import Model, SparseModel
from sandbox.models.words import TestChangeKind, Verdict


class TestChange(SparseModel):
    """One test that differs between two trees, or fails on both. `message`, `path`, `line`: of its failure, if the
    report has them. `ran`, `failed`: how often it ran and failed on this tree; only for tests that ran again.
    """

    __test__ = False  # not a pytest class

    test: str
    change: TestChangeKind
    message: str | None = None
    path: str | None = None
    line: int | None = None
    ran: int | None = None
    failed: int | None = None


class CoverageChange(Model):
    """The coverage that a check says on both trees. No verdict depends on it."""

    before: Coverage
    after: Coverage

    @property
    def points(self) -> float:
        """By how many percentage points it rose."""
        return self.after.percent - self.before.percent

    def describe(self) -> str:
        """For people: both shares and the difference."""
        return f"{self.before.percent:.2f} % -> {self.after.percent:.2f} % ({self.points:+.2f})"


class CheckComparison(SparseModel):
    """One check on both trees. `before`, `after`: its verdicts; absent if it did not run. `by`: what was compared:
    the tests of both reports, or the verdicts alone, if the other tree has no test results of this check.

    `counts`: tests of each kind. `changes`: at most 500 of them, the worst first. `reasons`: why there are new
    failures; none without. `before_run_id`, `before_cached`: the run on the other tree. `coverage`: if both runs kept
    one.
    """

    check_id: CheckId
    before: Verdict | None = None
    after: Verdict | None = None
    by: Literal["tests", "verdict"]
    counts: dict[TestChangeKind, int]
    changes: tuple[TestChange, ...]
    reasons: tuple[str, ...]
    before_run_id: str | None = None
    before_cached: bool | None = None
    coverage: CoverageChange | None = None


class TreeComparison(Model):
    """The checks of a tree compared with the same checks on another one. `against`: as the caller named it; `commit`,
    `tree`: what that is. `no_new_failures`: no check has a reason in `reasons`. If a check failed, this rests on what
    its report says, which is the guest's own word.
    """

    against: str
    commit: ObjectId
    tree: ObjectId
    checks: tuple[CheckComparison, ...]
    no_new_failures: bool
