"""The combined CI verdict of all checks of a commit. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.models import CiCheck, CiState, CiVerdict


def verdict_of(checks: Sequence[CiCheck]) -> CiVerdict:
    """Fail if any check failed; else pending if any is pending; else pass. None for no checks."""
    states = {check.state for check in checks}
    for state, verdict in ((CiState.FAIL, CiVerdict.FAIL), (CiState.PENDING, CiVerdict.PENDING)):
        if state in states:
            return verdict
    return CiVerdict.PASS if states else CiVerdict.NONE
