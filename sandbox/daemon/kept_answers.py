"""What takes seconds to find out, and pages show: kept for a while with its time, and asked for again on request.

So a page that is opened often, or by many at once, does not walk a large home or ask the engine each time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Generic, TypeVar

from sandbox.models import Probe, Storage

KEPT_S = 300.0

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True)
class TimedAnswer(Generic[AnswerT]):
    """An answer and when it was found."""

    value: AnswerT
    at: datetime


class KeptAnswer(Generic[AnswerT]):
    """The answer to one question. Callers that ask at the same time wait for one answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: TimedAnswer[AnswerT] | None = None
        self._until = 0.0

    def get(self, ask: Callable[[], AnswerT]) -> TimedAnswer[AnswerT]:
        """The kept answer, or a new one. Raises: what `ask` raises; no error is kept."""
        with self._lock:
            if self._kept is None or time.monotonic() >= self._until:
                self._kept = TimedAnswer(ask(), datetime.now(UTC))
                self._until = time.monotonic() + KEPT_S
            return self._kept

    def forget(self) -> None:
        """Have the next caller ask."""
        self._until = 0.0


@dataclass(frozen=True)
class KeptAnswers:
    """Those of one dashboard: what `doctor` finds, and what the home holds."""

    probes: KeptAnswer[tuple[Probe, ...]] = field(default_factory=KeptAnswer)
    storage: KeptAnswer[Storage] = field(default_factory=KeptAnswer)
