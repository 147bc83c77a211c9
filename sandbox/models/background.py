"""Background runs of checks, and fetches of packages: they continue after the call that started them has returned."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime

from sandbox.models.explorations import Exploration
from sandbox.models.ids import CheckId, RepoId, TaskId
from sandbox.models.layers import PreparedLayers
from sandbox.models.model import Model
from sandbox.models.runs import CheckRun
from sandbox.models.verifications import Verification

BackgroundOperation = Literal["check", "verify", "candidate", "layers-build", "explore"]


class BackgroundFacts(Model):
    """What the answer about a background run and its record on disk have in common: the request, progress, results."""

    run_id: str
    task_id: TaskId | None = None
    repo_id: RepoId | None = None
    operation: BackgroundOperation
    check_ids: tuple[str, ...] = ()
    state: Literal["running", "finished", "failed"]
    started_at: AwareDatetime
    deadline_s: float | None = None
    check_id: CheckId | None = None
    check_run_id: str | None = None
    queue_position: int | None = None
    waits_for: str | None = None
    last_lines: tuple[str, ...] = ()
    runs: tuple[CheckRun, ...] = ()
    verification: Verification | None = None
    prepared: PreparedLayers | None = None
    exploration: Exploration | None = None


class BackgroundRun(BackgroundFacts):
    """One request to run checks, or to build layers, started in the background. `run_id` names the request. It is on a
    task, or with `repo_id` and no `task_id` on a repository: only a `layers-build`.

    `check_ids`: as asked, also names that no check has: such a run ends with `not_found`. For `check`, `run_id` is also
    the id of the run of the last of them, unless a required check did not pass.
    While `state` is `running`: `check_id` is the current check and `check_run_id` its run; its log can be read.
    `deadline_s` is the deadline of that check and `elapsed_s` the duration of the request, both in seconds since
    `started_at`. `queue_position` is the place among waiting checks; a waiting check has no deadline yet.
    `waits_for`: what holds the task, while no check of the run has begun because another operation has the task.
    When `state` is `finished`: `runs` has the runs of a `check`, required ones first, `verification` the result of a
    `verify` or `candidate`, `exploration` that of an `explore`, and `prepared` that of a `layers-build`, unless it was
    stopped. `last_lines` is guest text.
    """

    state: Literal["running", "finished"]
    elapsed_s: float
