"""What `explore` says: several ways to change one task, tried side by side and ranked."""

from __future__ import annotations

from pydantic import Field

from sandbox.models.ids import ObjectId, TaskId
from sandbox.models.model import Model, SparseModel
from sandbox.models.words import Verdict


class ExploredWay(SparseModel):
    """One way that was tried. `rank`: 1 is the best; None if it could not be tried, and `problem` says why.

    `snapshot`, `tree`: its whole state, kept as a snapshot of the task. `verdicts`, `runs`: by check; a check that
    requires one that did not pass is missing. `newly_failing`: tests that fail, and did not on the task's own state,
    the first of them in `newly_failing_tests`; a check without results of tests counts as one test, and one of which
    not all tests are known, here or there, as one more unless it passes here. `failing`: all tests that fail.
    `missing`: tests that ran there, and are gone or skipped here; one that passed there and that its check, which does
    not pass here, did not reach counts as failing. Tests of one name are counted. `wall_time_s`, `memory_peak_bytes`:
    sum and maximum over its runs, also of cached ones.
    """

    name: str
    rank: int | None = None
    problem: str | None = None
    snapshot: str | None = None
    tree: ObjectId | None = None
    verified: bool = False
    verdicts: dict[str, Verdict] = Field(default_factory=dict)
    runs: dict[str, str] = Field(default_factory=dict)
    newly_failing: int = 0
    newly_failing_tests: tuple[str, ...] = ()
    failing: int = 0
    missing: int = 0
    files: int = 0
    additions: int = 0
    deletions: int = 0
    wall_time_s: float = 0.0
    memory_peak_bytes: int | None = None


class Exploration(Model):
    """The answer of `explore`. `ways`: the best first. `base_tree`: the task's state that they are compared with.

    `winner`: the best way that breaks no test; None if there is none. `restored`: the task has its state now; if not,
    `note` says why. It also names checks that did not end by themselves on the task's own state, or failed there with
    tests that are not known.
    """

    task_id: TaskId
    base_tree: ObjectId
    base_failing: int
    ways: tuple[ExploredWay, ...]
    winner: str | None = None
    restored: bool = False
    note: str = ""
