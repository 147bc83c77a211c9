"""Who wants to hear while checks run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox.models import Check, CheckRun


def _silent(_check: Check, _run: CheckRun | None) -> None:
    return None


@dataclass(frozen=True)
class Watch:
    """`announce`: called before a check (None) and after it with its run. `follow`: ('stdout'|'stderr', chunk)."""

    announce: Callable[[Check, CheckRun | None], None] = _silent
    follow: Callable[[str, bytes], None] | None = None
