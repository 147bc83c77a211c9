"""Who wants to hear while checks run, and to end them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox.models import Check, CheckRun


def _silent(_check: Check, _run: CheckRun | None) -> None:
    return None


def _unnoticed(_run_id: str, _check: Check) -> None:
    return None


def _unheard(_position: int) -> None:
    return None


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Watch:
    """`announce`: called before a check (None) and after it with its run. `follow`: ('stdout'|'stderr', chunk).

    `cancelled`: asked several times a second, from the thread that runs the check, or waits to: true ends the check
    (`killed`), and no further one of the request starts; see `sandbox.Cancellation`. `queued`: called with the place
    in the line while other checks of this home have their turn: 1 for the next one, 0 when its own has come.
    `starts`: called before a check with the id its run will have, by which its log can be read while it runs.
    """

    announce: Callable[[Check, CheckRun | None], None] = _silent
    follow: Callable[[str, bytes], None] | None = None
    cancelled: Callable[[], bool] = _never
    queued: Callable[[int], None] = _unheard
    starts: Callable[[str, Check], None] = _unnoticed
