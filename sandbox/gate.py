"""The gate: which steps need a verified tree. Pure; the caller finds out what is verified."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal

from sandbox.models.comparisons import CheckComparison, TreeComparison
from sandbox.models.words import TestChangeKind, Verdict

Require = Literal["none", "pr-ready", "push", "pr"]
"""The setting `gate.require`: the first step that needs a verified tree."""


class DeliveryStep(StrEnum):
    """A step by which a tree leaves this host, in their order."""

    PUSH = "push"
    DRAFT_PR = "draft-pr"
    READY_PR = "ready-pr"


_GUARDED: dict[Require, frozenset[DeliveryStep]] = {
    "none": frozenset(),
    "pr-ready": frozenset({DeliveryStep.READY_PR}),
    "pr": frozenset({DeliveryStep.DRAFT_PR, DeliveryStep.READY_PR}),
    "push": frozenset(DeliveryStep),
}

_STEP_NAMES = {
    DeliveryStep.PUSH: "a push",
    DeliveryStep.DRAFT_PR: "a draft pull request",
    DeliveryStep.READY_PR: "a ready pull request",
}


def needs_verification(step: DeliveryStep, require: Require) -> bool:
    """Whether a step needs a verified tree."""
    return step in _GUARDED[require]


def describe_refusal(step: DeliveryStep, tree: str, missing: Sequence[str], profile: str) -> str:
    """Say why the gate is closed. `missing`: the checks that have not passed in a clean room on the tree; empty: the
    profile has no checks.
    """
    before = f"tree {tree[:12]} must be verified before {_STEP_NAMES[step]}"
    if not missing:
        return f"The gate is closed: {before}, but the profile '{profile}' has no checks"
    named = ", ".join(f"'{name}'" for name in missing)
    return f"The gate is closed: {before}, but it has not passed {named} in a clean room"


_NEEDS_NO_EXCUSE = frozenset({TestChangeKind.FLAKY, TestChangeKind.NEW})


def has_excuses(found: TreeComparison) -> bool:
    """Whether a check did not pass, and this is no new failure only because of how it ended on the other tree, or of
    its tests there. Where it passed there, what fails here and is flaky needs no excuse. Pure.
    """
    return any(_is_excused(check) for check in found.checks)


def _is_excused(check: CheckComparison) -> bool:
    if check.after is Verdict.PASSED:
        return False
    return check.before is not Verdict.PASSED or not _NEEDS_NO_EXCUSE.issuperset(check.counts)
