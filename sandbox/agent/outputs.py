"""Result models of tools for which the use-case returns something other than an object."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from sandbox.models import (
    ApprovalState,
    Cause,
    ExploredWay,
    FailedTest,
    FileContent,
    FlakyTest,
    Model,
    Pressure,
    Remark,
    Repository,
    Snapshot,
    SparseModel,
    Task,
    TaskId,
    TaskPlace,
    TestChange,
    Verdict,
)
from sandbox.models.checks import CheckParameter, Jobs, WorkspaceAccess
from sandbox.models.dependencies import RefusedEntry
from sandbox.models.layers import LayerSummary
from sandbox.models.model import HostPath


class Repositories(Model):
    repositories: tuple[Repository, ...]


class TaskResult(Model):
    task: Task


class ListedTask(SparseModel, Task):
    """A task without the fields that have no value."""

    worktree_path: HostPath | None = None
    session: str | None = None  # type: ignore[assignment]  # absent for a person, as other fields without a value


class Tasks(SparseModel):
    """`truncated`: older tasks are left out. `closed_left_out`: how many of them are closed: of these, also with a
    repo_id, only the last created are listed. `waiting`: those of a cluster that no worker has now, or
    that none says anything about.
    """

    tasks: tuple[ListedTask, ...]
    truncated: bool = False
    closed_left_out: int | None = None
    waiting: dict[TaskId, TaskPlace] | None = None


class ListedCheck(SparseModel):
    """A check without the fields that have their default. `limits`: those that differ from the shared ones."""

    id: str
    label: str
    argv: tuple[str, ...]
    timeout_s: float
    cwd: str | None = None
    env: dict[str, str] | None = None
    limits: dict[str, int | float] | None = None
    jobs: Jobs | None = None
    requires: tuple[str, ...] | None = None
    deterministic: bool | None = None
    workspace: WorkspaceAccess | None = None
    parameters: tuple[CheckParameter, ...] | None = None


class Checks(Model):
    """`limits`: of each check that does not say others. `advice`: what was seen that decides whether checks can run."""

    checks: tuple[ListedCheck, ...]
    limits: dict[str, int | float] = Field(default_factory=dict)
    advice: tuple[Remark, ...] = ()


class Snapshots(Model):
    """Oldest first."""

    snapshots: tuple[Snapshot, ...]


class FileResult(FileContent):
    """A file as shown to an agent: its exact content, because an edit needs it.

    `invisible`: the characters of `content` that cannot be seen, how many of each, and the line of the first.
    """

    invisible: tuple[str, ...] = ()


RunState = Literal["running", "finished"]


class RunUsage(SparseModel):
    """The resources a check used, as far as this host measures them. The limits are those of the check."""

    cpu_time_s: float | None = None
    memory_peak_bytes: int | None = None
    pids_peak: int | None = None
    oom_kills: int | None = None
    forks_refused: int | None = None
    own_pids_limit: bool | None = None
    disk_written_bytes: int | None = None
    disk_used_bytes: int | None = None
    disk_used_files: int | None = None
    leftover_processes: int | None = None
    memory_left_bytes: int | None = None
    cpu_throttled_s: float | None = None
    pressure: Pressure | None = None
    host_out_of_memory: bool | None = None


class TestCounts(Model):
    """The sums over the test reports that a check wrote."""

    __test__ = False  # not a pytest class

    tests: int
    failures: int
    errors: int
    skipped: int


class RunResult(SparseModel):
    """A run as shown to an agent: the most important fields first, only fields that an agent uses.

    Tails and `truncated` are absent when the run passed; `space_repo_read_log` has all output, also that of the
    `services` that ran beside it, as `service-NAME`. While `state` is
    `running` there are `elapsed_s`, `deadline_s`, `queue_position` and `last_lines` instead of a verdict, or
    `waits_for`: which operation holds the task, so that the check cannot begin. `notes` then says that it has not.
    """

    verdict: Verdict | None = None
    cause: Cause | None = None
    phases: tuple[str, ...] | None = None
    failures: tuple[FailedTest, ...] | None = None
    exit_code: int | None = None
    signal: int | None = None
    stdout_tail: str | None = None
    stderr_tail: str | None = None
    stdout_shown_from_byte: int | None = None
    stderr_shown_from_byte: int | None = None
    truncated: bool | None = None
    state: RunState | None = None
    elapsed_s: float | None = None
    deadline_s: float | None = None
    queue_position: int | None = None
    waits_for: str | None = None
    last_lines: tuple[str, ...] | None = None
    stdout_bytes: int | None = None
    stderr_bytes: int | None = None
    report: TestCounts | None = None
    services: tuple[str, ...] | None = None
    notes: tuple[str, ...] | None = None
    run_id: str
    check_id: str | None = None
    task_id: str | None = None
    started_at: datetime | None = None
    wall_time_s: float | None = None
    usage: RunUsage | None = None
    tree: str | None = None
    clean_room: bool | None = None
    guest_user: Literal["own", "shared"] | None = None
    cached: bool | None = None
    image_digest: str | None = None
    runtime: str | None = None


class ComparedCheck(SparseModel):
    """A check on both trees. `changes`: of its tests, the worst first, at most 20; `counts` has all. `new_failures`:
    why there are some. `before`, `after`: its verdicts.
    """

    check_id: str
    before: Verdict | None = None
    after: Verdict | None = None
    new_failures: tuple[str, ...] | None = None
    counts: dict[str, int] | None = None
    changes: tuple[TestChange, ...] | None = None


class _Progress(SparseModel):
    """Of a run in the background; all but the ids and the state only while `state` is `running`."""

    run_id: str
    task_id: str | None = None
    state: RunState
    elapsed_s: float | None = None
    queue_position: int | None = None
    waits_for: str | None = None
    last_lines: tuple[str, ...] | None = None


class _ProgressWithCheck(_Progress):
    """The same, with the check that runs."""

    check_id: str | None = None
    deadline_s: float | None = None


class _VerifyFields(SparseModel):
    verified: bool | None = None
    uncommitted: int | None = None
    no_new_failures: bool | None = None
    comparison: tuple[ComparedCheck, ...] | None = None
    flaky: tuple[FlakyTest, ...] | None = None
    runs: tuple[RunResult, ...] | None = None
    tree: str | None = None
    commit: str | None = None
    differences: tuple[str, ...] | None = None


class _PrepareFields(SparseModel):
    layers: tuple[LayerSummary, ...] | None = None
    refused: tuple[RefusedEntry, ...] | None = None
    commit: str | None = None
    verdict: Verdict | None = None


class _ExploreFields(SparseModel):
    ways: tuple[ExploredWay, ...] | None = None
    winner: str | None = None
    restored: bool | None = None
    note: str | None = None
    base_tree: str | None = None
    base_failing: int | None = None


# Fields of the last base stand first: what was found, then the progress.


class VerifyResult(_ProgressWithCheck, _VerifyFields):
    """The result of a verification: whether every required check passed on `tree`, that of `commit`, and the runs in
    order. `uncommitted`: how many changes the task had beside that commit then, so they are not verified.

    With `against`: `no_new_failures`, and in `comparison` each check on both trees.

    While `state` is `running`: its progress, as in a `RunResult`.
    """


class PrepareResult(_Progress, _PrepareFields):
    """The layers of a commit, none if its manifests ask for no package; `refused`: entries that are not used.

    `verdict` is `killed` if the run was stopped, else absent. While `state` is `running`: its progress, as in a
    `RunResult`.
    """


class ExploreResult(_ProgressWithCheck, _ExploreFields):
    """The ways that were tried, the best first, and whether the task has the state of the best now.

    While `state` is `running`: its progress, as in a `RunResult`.
    """


class WaitRunResult(_ExploreFields, _PrepareFields, _VerifyFields, RunResult):
    """A `RunResult`, or the fields of a `VerifyResult`, `PrepareResult` or `ExploreResult`, depending on which tool
    started the run.
    """


class ApprovalResult(Model):
    """`state` is `approved` when no person needs to be asked."""

    id: str
    state: ApprovalState
