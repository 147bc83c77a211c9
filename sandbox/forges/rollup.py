"""All checks of a commit in one word. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.models import CiCheck, CiState, CiVerdict


def verdict_of(checks: Sequence[CiCheck]) -> CiVerdict:
    """One failure fails; else one that is not finished keeps it open; none at all is no verdict."""
    states = {check.state for check in checks}
    for state, verdict in ((CiState.FAIL, CiVerdict.FAIL), (CiState.PENDING, CiVerdict.PENDING)):
        if state in states:
            return verdict
    return CiVerdict.PASS if states else CiVerdict.NONE
