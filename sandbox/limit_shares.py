"""How much of a limit was used, for a person: the same in commands and pages."""

from __future__ import annotations

_NEAR_SHARE = 0.25
"""Of a limit: what stays below it is drawn larger, and without the limit."""


def is_near_limit(highest: float, limit: float) -> bool:
    """Whether a curve is drawn against its limit: one far below it would be a flat line."""
    return highest > limit * _NEAR_SHARE


def format_share(used: float, limit: float) -> str:
    """Percent of a limit; what is not zero is not shown as zero."""
    percent = 100 * used / limit
    return "under 1 %" if 0 < percent < 1 else f"{percent:.0f} %"
