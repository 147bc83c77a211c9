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
    """The answer to one question. While one caller asks, others get the answer before, or wait for the first one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._kept: TimedAnswer[AnswerT] | None = None
        self._until = 0.0
        self._generation = 0  # how often it was forgotten
        self._asked: int | None = None  # the generation for which a caller asks now

    def get(self, ask: Callable[[], AnswerT]) -> TimedAnswer[AnswerT]:
        """The kept answer, or a new one. Raises: what `ask` raises; no error is kept."""
        with self._changed:
            while self._asked == self._generation and self._kept is None:
                self._changed.wait()
            if self._kept is not None and (self._asked == self._generation or time.monotonic() < self._until):
                return self._kept
            generation = self._asked = self._generation
        answer: TimedAnswer[AnswerT] | None = None
        try:
            answer = TimedAnswer(ask(), datetime.now(UTC))
            return answer
        finally:
            self._end_question(generation, answer)

    def _end_question(self, generation: int, answer: TimedAnswer[AnswerT] | None) -> None:
        """Keep an answer, unless it was forgotten meanwhile. `answer`: None after an error."""
        with self._changed:
            if generation == self._generation:
                self._asked = None
                if answer is not None:
                    self._kept, self._until = answer, time.monotonic() + KEPT_S
            self._changed.notify_all()

    def forget(self) -> None:
        """Have the next caller ask, also while another asks: what that one finds may be older."""
        with self._changed:
            self._until = 0.0
            self._generation += 1
            self._changed.notify_all()


@dataclass(frozen=True)
class KeptAnswers:
    """Those of one dashboard: what `doctor` finds, and what the home holds."""

    probes: KeptAnswer[tuple[Probe, ...]] = field(default_factory=KeptAnswer)
    storage: KeptAnswer[Storage] = field(default_factory=KeptAnswer)
