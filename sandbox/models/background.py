"""Runs of checks that go on while the call that started them has returned."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from sandbox.models.ids import CheckId, TaskId
from sandbox.models.model import Model
from sandbox.models.runs import CheckRun, Verification

BackgroundOperation = Literal["check", "verify"]


class BackgroundRun(Model):
    """One request to run checks, started in the background. `run_id` names the request.

    For `check` it is also the id of the run of the last check in `check_ids`, unless a required check stopped it.
    While `state` is `running`: `check_id` is the check at work and `check_run_id` its run, whose log can be read;
    `deadline_s` is when that check is ended at the latest and `elapsed_s` how long the request has taken, both in
    seconds since `started_at`; `queue_position` is its place among waiting checks, and then there is no deadline yet.
    When `state` is `finished`: `runs` has the runs of a `check`, required ones first, `verification` the result of a
    `verify`. Lines in `last_lines` are guest text.
    """

    run_id: str
    task_id: TaskId
    operation: BackgroundOperation
    check_ids: tuple[CheckId, ...] = ()
    state: Literal["running", "finished"]
    started_at: datetime
    elapsed_s: float
    deadline_s: float | None = None
    check_id: CheckId | None = None
    check_run_id: str | None = None
    queue_position: int | None = None
    last_lines: tuple[str, ...] = ()
    runs: tuple[CheckRun, ...] = ()
    verification: Verification | None = None
