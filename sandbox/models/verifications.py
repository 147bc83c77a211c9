"""Verifications: all checks of a commit in clean rooms, alone or compared with those of another tree."""

from __future__ import annotations

from sandbox.models.comparisons import TreeComparison
from sandbox.models.flaky import FlakyTest
from sandbox.models.ids import ObjectId
from sandbox.models.model import Model
from sandbox.models.runs import CheckRun


class Verification(Model):
    """The answer of `verify`: the runs in order, and whether every required check passed on `tree`.

    `differences`: where a check gave another verdict in the task, and which paths exist only there; text for users.
    `comparison`, `no_new_failures`: with another tree, if one was asked for. `flaky`: tests that failed and passed on
    this tree. If the checks ran several times, `runs` has of each check the first run that did not pass, or the last.
    `rounds_passed`: the request was stopped when only so many of its rounds had passed, so the tree is not verified.
    `commit`: that the tree belongs to; None in records of older versions. `uncommitted`: how many changes the task had
    beside it then, so they are not verified; None: not known, or not asked for.
    """

    runs: tuple[CheckRun, ...]
    verified: bool
    uncommitted: int | None = None
    tree: ObjectId
    commit: ObjectId | None = None
    differences: tuple[str, ...] = ()
    no_new_failures: bool | None = None
    comparison: TreeComparison | None = None
    flaky: tuple[FlakyTest, ...] = ()
    rounds_passed: int | None = None
