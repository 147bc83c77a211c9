"""What runs lacked of the packages that their project asks for, as users read it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from sandbox.models import CheckRun

WITHOUT = "without packages that the project asks for"
"""Stands beside the word for a verdict: it holds for what was there."""


def describe_missing_packages(runs: Iterable[CheckRun]) -> tuple[str, ...]:
    """One line for each reason, once for all runs; none if they had all packages."""
    return tuple(f"packages missing: {text}" for text in dict.fromkeys(t for run in runs for t in run.missing_packages))
