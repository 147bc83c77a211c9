"""Sizes for a person: the same text in commands, pages and errors."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def format_bytes(size: float | None) -> str:
    """`512 MiB`, `1.5 GiB`: three digits where they say more. None is 0."""
    value = float(size or 0)
    unit, *larger = _UNITS
    while value >= 1024 and larger:
        value /= 1024
        unit, *larger = larger
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 or value == int(value) else f"{value:.1f} {unit}"
