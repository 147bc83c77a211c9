"""What the load on a cluster does, drawn before it runs, and the counts of what came of it. No cluster is needed."""

from __future__ import annotations

import hashlib
import random
import statistics
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sandbox.models import Verdict
from sandbox.models.operations import OperationAnswer

EDITED_BEFORE, COMMITTED, CANCELLED = 0.5, 0.3, 0.05
"""Shares: of checks before which a file is edited, of tasks with a commit, of checks that are cancelled."""


@dataclass(frozen=True)
class LoadScale:
    """How much is done. `clients`: agents at once, each with one task at a time."""

    tasks: int = 200
    checks: int = 1000
    clients: int = 16


class StepKind(StrEnum):
    """What an agent does next."""

    WRITE = "write"
    CHECK = "check"
    CANCEL = "cancel"
    COMMIT = "commit"


@dataclass(frozen=True)
class Step:
    """`content`: of the file `answer` after a `WRITE`."""

    kind: StepKind
    content: str = ""


def plan_tasks(scale: LoadScale, seed: int = 1) -> list[tuple[Step, ...]]:
    """The steps of each task; all together have as many checks as the scale says, cancelled ones included."""
    draw = random.Random(seed)  # noqa: S311 - a load, not a secret
    shares = [scale.checks // scale.tasks + (place < scale.checks % scale.tasks) for place in range(scale.tasks)]
    return [_plan_task(draw, number, share) for number, share in enumerate(shares)]


def _plan_task(draw: random.Random, number: int, checks: int) -> tuple[Step, ...]:
    steps = []
    for turn in range(checks):
        if turn == 0 or draw.random() < EDITED_BEFORE:
            steps.append(Step(StepKind.WRITE, f"{draw.choice(('right', 'wrong'))}\n{number} {turn}\n"))
        steps.append(Step(StepKind.CANCEL if draw.random() < CANCELLED else StepKind.CHECK))
    if draw.random() < COMMITTED:
        steps.append(Step(StepKind.COMMIT))
    return tuple(steps)


def expect_verdict(content: str) -> Verdict:
    """What the check `answer` has to say of a file."""
    return Verdict.PASSED if content.startswith("right\n") else Verdict.FAILED


def hash_content(content: str) -> str:
    """As operations name the hash of a file."""
    return f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"


def strip_lost(answer: OperationAnswer) -> Mapping[str, Any]:
    """An answer without what is for people only."""
    return answer.model_dump(mode="json", exclude={"lost"})


@dataclass
class Tally:
    """Counts of a load. Thread-safe. `faults`: promises that were broken, each with an example; all must be 0.

    `errors`: typed errors by code and reason. `answered`: what has become of checks. `recovered`: seconds from each
    kill to the first answer of each task that was on the killed worker, by kill.
    """

    answered: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    recovered: dict[str, list[float]] = field(default_factory=dict)
    closed: int = 0
    moved: int = 0
    compared: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def note_fault(self, kind: str, example: str) -> None:
        """A promise was broken."""
        with self._lock:
            self.faults[kind] += 1
            self.examples.setdefault(kind, example[:500])

    def note_error(self, code: str, reason: str | None, text: str = "") -> None:
        """An operation ended with a typed error."""
        name = f"{code} ({reason})" if reason else code
        with self._lock:
            self.errors[name] += 1
            self.examples.setdefault(name, text[:500])

    def note_check(self, end: str) -> None:
        """`end`: a verdict, `cancelled` or `error`."""
        with self._lock:
            self.answered[end] += 1

    def note_recovery(self, kill: str, seconds: float) -> None:
        """A task of a killed worker was answered again."""
        with self._lock:
            self.recovered.setdefault(kill, []).append(seconds)

    def add(self, *, closed: int = 0, moved: int = 0, compared: int = 0) -> None:
        """Add to the plain counts."""
        with self._lock:
            self.closed += closed
            self.moved += moved
            self.compared += compared

    @property
    def done(self) -> int:
        """Checks that have ended."""
        with self._lock:
            return self.answered.total()


def judge_check(tally: Tally, verdicts: Sequence[str], expected: Verdict, name: str) -> None:
    """Count the end of a check that was not cancelled. `name`: of its operation, for an example."""
    if list(verdicts) == [expected]:
        tally.note_check(str(expected))
        return
    tally.note_check("wrong")
    tally.note_fault("wrong verdicts", f"{name}: {', '.join(verdicts)} instead of {expected}")


def describe_counts(counts: Mapping[str, int]) -> str:
    """`3 passed, 2 failed`; the largest first."""
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{count} {name}" for name, count in ordered) or "0"


def describe_times(seconds: Iterable[float]) -> str:
    """Median and maximum, in seconds, and of how many."""
    found = sorted(seconds)
    if not found:
        return "no task was on it"
    return f"median {statistics.median(found):.1f} s, max {found[-1]:.1f} s, {len(found)} tasks"
