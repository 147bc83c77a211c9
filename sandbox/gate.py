"""The gate: what has to be verified before it leaves this host. Pure; what is verified is for others to find out."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal

Require = Literal["none", "pr-ready", "push", "pr"]
"""The setting `gate.require`: the least step that needs a verified tree."""


class Step(StrEnum):
    """A way for a tree to leave this host, in the order they come after each other."""

    PUSH = "push"
    DRAFT_PR = "draft-pr"
    READY_PR = "ready-pr"


_GUARDED: dict[Require, frozenset[Step]] = {
    "none": frozenset(),
    "pr-ready": frozenset({Step.READY_PR}),
    "pr": frozenset({Step.DRAFT_PR, Step.READY_PR}),
    "push": frozenset(Step),
}

_WORDS = {Step.PUSH: "a push", Step.DRAFT_PR: "a draft pull request", Step.READY_PR: "a pull request that is ready"}


def required(step: Step, require: Require) -> bool:
    """Whether a step needs a verified tree."""
    return step in _GUARDED[require]


def refusal(step: Step, tree: str, missing: Sequence[str], profile: str) -> str:
    """Why the gate is closed: which checks lack a passed verdict of a clean room on the tree; none means that the
    profile has no checks.
    """
    before = f"tree {tree[:12]} has to be verified before {_WORDS[step]}"
    if not missing:
        return f"The gate is closed: {before}, and the profile '{profile}' has no checks to verify it with"
    named = ", ".join(f"'{name}'" for name in missing)
    return f"The gate is closed: {before}, and no clean room has passed {named} on it"
