"""Times for users: local with their offset; in a listing on a terminal relative. JSON has UTC."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

from sandbox.cli.terminal import is_interactive

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_LONG = timedelta(days=30)


def format_local(at: datetime) -> str:
    """`2026-11-22T18:24:50+01:00`."""
    return at.astimezone().isoformat(timespec="seconds")


def format_for_listing(at: datetime) -> str:
    """For a table column: `3 min ago` on a terminal, the local time elsewhere."""
    return format_relative(at) if is_interactive(sys.stdout) else format_local(at)


def format_relative(at: datetime, now: datetime | None = None) -> str:
    """`3 min ago`, `in 2 h`; the date if it is more than 30 days away."""
    away = at - (now or datetime.now(UTC))
    if abs(away) > _LONG:
        return at.astimezone().date().isoformat()
    seconds = round(abs(away.total_seconds()))
    if seconds == 0:
        return "now"
    length, unit = next((length, unit) for length, unit in _UNITS if seconds >= length)
    amount = f"{seconds // length} {unit}"
    return f"in {amount}" if away > timedelta() else f"{amount} ago"
