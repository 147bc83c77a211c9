"""What tools return where the use-case returns something plainer than an object."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from sandbox.models import (
    ApprovalState,
    BackgroundRun,
    Check,
    CheckId,
    CheckRun,
    Model,
    ObjectId,
    Report,
    Repository,
    Task,
    TaskId,
    Usage,
    Verdict,
)


class Repositories(Model):
    repositories: tuple[Repository, ...]


class OneTask(Model):
    task: Task


class Tasks(Model):
    """`truncated`: older ones are left out; name a repository to see its own."""

    tasks: tuple[Task, ...]
    truncated: bool = False


class Checks(Model):
    checks: tuple[Check, ...]


class RequestedApproval(Model):
    """`state` is `approved` when no person needs to be asked."""

    id: str
    state: ApprovalState


class RunAnswer(Model):
    """A run of checks. `running`: ask again with space_repo_wait_run. `finished`: its result is here.

    Of a check: the run of the last check that ran. Of a verification: `runs`, `verified`, `tree`, `differences`.
    """

    run_id: str
    state: Literal["running", "finished"]
    task_id: TaskId | None = None
    elapsed_s: float | None = None
    deadline_s: float | None = None
    queue_position: int | None = None
    last_lines: tuple[str, ...] = ()
    check_id: CheckId | None = None
    verdict: Verdict | None = None
    exit_code: int | None = None
    signal: int | None = None
    started_at: datetime | None = None
    wall_time_s: float | None = None
    usage: Usage | None = None
    stdout_tail: str | None = None
    stderr_tail: str | None = None
    stdout_bytes: int | None = None
    stderr_bytes: int | None = None
    truncated: bool | None = None
    tree: ObjectId | None = None
    clean_room: bool | None = None
    cached: bool | None = None
    image_digest: str | None = None
    runtime: str | None = None
    report: Report | None = None
    runs: tuple[CheckRun, ...] | None = None
    verified: bool | None = None
    differences: tuple[str, ...] = ()


def answer_of(found: BackgroundRun) -> RunAnswer:
    """What a tool says of a run."""
    if found.state == "running":
        fields = ("run_id", "task_id", "state", "elapsed_s", "deadline_s", "queue_position", "last_lines", "check_id")
        return RunAnswer.model_validate({name: getattr(found, name) for name in fields})
    if found.verification is not None:
        result: Model = found.verification
    else:
        result = found.runs[-1]
    document = {name: getattr(result, name) for name in type(result).model_fields}
    return RunAnswer.model_validate({**document, "run_id": found.run_id, "state": "finished", "task_id": found.task_id})
