"""Operations on a task that can be asked for from another process or host, and their recorded answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveInt, StringConstraints

from sandbox.models.ids import ObjectId, Sha256, TaskId
from sandbox.models.model import Model, SparseModel
from sandbox.models.workers import AnnouncedCount, AnnouncedWord, HostCapabilities, WorkerId

OperationId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""Chosen by the caller. The same id is the same wish: it is carried out once, and answered alike as often as asked."""


class OperationName(StrEnum):
    """What a worker can be asked to do with a task."""

    CREATE = "create"
    READ_FILE = "read-file"
    EDIT_FILE = "edit-file"
    WRITE_FILE = "write-file"
    APPLY_PATCH = "apply-patch"
    DELETE_FILE = "delete-file"
    RENAME_FILE = "rename-file"
    SEARCH = "search"
    STATUS = "status"
    DIFF = "diff"
    LIST_CHECKS = "list-checks"
    CHECK = "check"
    VERIFY = "verify"
    EXPLORE = "explore"
    CANDIDATE = "candidate"
    SNAPSHOT = "snapshot"
    LIST_SNAPSHOTS = "list-snapshots"
    RESTORE = "restore"
    CLEAN = "clean"
    SYNC = "sync"
    CHECKOUT = "checkout"
    FORK = "fork"
    COMMIT = "commit"
    CLOSE = "close"
    PUSH = "push"
    OPEN_PR = "open-pr"
    PR_STATUS = "pr-status"
    LIST_RUNS = "list-runs"
    FIND_RUN = "find-run"
    RUN_LOG = "run-log"
    READ_LOG = "read-log"
    TEST_RESULTS = "test-results"
    USAGE = "usage"
    JOURNAL = "journal"
    LOOK = "look"
    PAST_RUN = "past-run"
    ARTIFACTS = "artifacts"
    READ_ARTIFACT = "read-artifact"
    STOP_CHECKS = "stop-checks"
    MAP = "map"
    IMPACT = "impact"
    CHECK_LIMITS = "check-limits"
    FIND_LAUNCH = "find-launch"
    LAYERS_BUILD = "layers-build"
    EXPORT_CHANGES = "export-changes"
    CLEAN_STATE = "clean-state"


class TaskPriority(StrEnum):
    """For whom a task is. One for a person goes before those of agents, and these before batch work."""

    PERSON = "person"
    AGENT = "agent"
    BATCH = "batch"


class TaskOperation(Model):
    """One wish. `epoch`: how often the task was given to a worker; 1 is the first. `arguments`: see
    `sandbox.cluster.operation_table`.
    """

    id: OperationId
    task_id: TaskId
    epoch: PositiveInt = 1
    name: OperationName
    arguments: Mapping[str, Any] = {}


class OperationError(Model):
    """As the `error` of all surfaces."""

    code: str
    brief: str
    details: str = ""
    hint: str = ""
    reason: str | None = None
    data: Mapping[str, Any] | None = None


class OperationAnswer(SparseModel):
    """The answer to an operation: a `value`, or an `error`. `worker`: who carried it out.

    `digest`: of the operation that this answers (`sandbox.cluster.done_operations`); None from a worker of an earlier
    version. `state`: the commit in the hub that holds the task's files after the operation. `lost`: what a task lost
    when its worker was lost before this operation, for people.
    """

    operation_id: OperationId
    task_id: TaskId
    epoch: PositiveInt
    worker: WorkerId
    value: Any = None
    error: OperationError | None = None
    digest: Sha256 | None = None
    state: ObjectId | None = None
    lost: str | None = None


class Placement(Model):
    """Where a task of a cluster is. `lost`: the workers that lost it. `is_waiting`: for a worker with a free slot.
    `loss`, `lost_at`: what it lost with the last one. `url`, `repository`, `requirements`: what a fork of it has in
    common with it. Later versions may say more.
    """

    model_config = ConfigDict(extra="ignore")

    worker: WorkerId | Literal[""] = ""
    epoch: NonNegativeInt = 0
    lost: Sequence[str] = ()
    is_waiting: bool = False
    requirements: Mapping[str, str] = {}
    url: str = ""
    repository: str = ""
    loss: str | None = None
    lost_at: AwareDatetime | None = None


class DoneOperation(Model):
    """The operation that made a state of a task in the hub, as its worker says there. `digest`: of its name and
    arguments (`sandbox.cluster.done_operations`). `has_answer`: whether `value` is what it answered.
    """

    operation_id: OperationId
    digest: Sha256
    epoch: PositiveInt
    worker: WorkerId
    has_answer: bool = False
    value: Any = None


class WorkerInfo(Model):
    """A worker that can be given tasks. `tasks`: how many it was given and has not ended; None if unknown.

    `version`: of the package; `slots`: how many operations it carries out before it takes no more tasks;
    `capabilities`: what it can do. A worker of a version that does not announce them has none of these.
    """

    id: WorkerId
    address: str = ""
    tasks: NonNegativeInt | None = None
    version: AnnouncedWord = ""
    slots: AnnouncedCount | None = None
    capabilities: HostCapabilities | None = None


class WorkerDrain(Model):
    """A worker that takes no more tasks and ends. `operations`: in progress on it, which end first."""

    worker: WorkerId
    operations: NonNegativeInt = 0


class WaitingLine(Model):
    """The tasks of a cluster that wait for a worker with a free slot, as Temporal counted them some seconds ago.
    `oldest_s`: how long the first has waited. `workers`: that take tasks.
    """

    tasks: NonNegativeInt = 0
    oldest_s: NonNegativeFloat = 0.0
    workers: NonNegativeInt = 0
