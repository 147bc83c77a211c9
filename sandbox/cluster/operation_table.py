"""What a worker can be asked to do: for each operation its arguments, and the use-case that carries it out.

An operation that `changes` a task is carried out once for its id. One that only reads is carried out each time.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Base64Bytes, BaseModel, Field, ValidationError, ValidationInfo, field_validator

from sandbox import Workbench
from sandbox.cluster import windows
from sandbox.document_errors import describe_errors
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import ConflictResolution, SearchQuery, Sha256, TaskOptions
from sandbox.models.ids import ObjectId, TaskId
from sandbox.models.model import Model
from sandbox.models.operations import OperationName, TaskOperation
from sandbox.models.task_look import Places
from sandbox.workbench import ExploreOptions, VerifyOptions, Watch
from sandbox.workbench.approvals.question import CLEANING, COMMITTING
from sandbox.workbench.tasks.snapshots import ForkRequest

Perform = Callable[[Workbench, str, Any, Watch], Any]
"""Called with the controller, the task's id, the arguments, and what may cancel the operation."""


class NoArguments(Model):
    """Of an operation on the whole task."""


class CreateArguments(Model):
    """`url`: of the repository. The rest as `Workbench.create_task` and `TaskOptions`."""

    url: str
    prompt: str = ""
    base_branch: str | None = None
    profile: str | None = None
    workspace_kind: str = TaskOptions().workspace_kind
    branch: str | None = None
    expected_choice: str | None = None


class ReadFileArguments(Model):
    """As `Workbench.read_file`."""

    path: str
    start_line: int | None = None
    end_line: int | None = None


class EditFileArguments(Model):
    """As `Workbench.edit_file`. `old` and `new` are in the `encoding`: base64 is for bytes that are not UTF-8."""

    path: str
    encoding: Literal["utf-8", "base64"] = "utf-8"
    old: str | bytes
    new: str | bytes
    expected_sha256: Sha256

    @field_validator("old", "new")
    @classmethod
    def _decode(cls, content: str | bytes, info: ValidationInfo) -> str | bytes:
        return base64.b64decode(content, validate=True) if info.data.get("encoding") == "base64" else content


class WriteFileArguments(Model):
    """As `Workbench.write_file`. `content` is base64."""

    path: str
    content: Base64Bytes
    expected_sha256: Sha256 | None = None
    executable: bool | None = None


class PatchArguments(Model):
    """As `Workbench.apply_patch`. `patch` is base64."""

    patch: Base64Bytes
    expected_hashes: Mapping[str, Sha256 | None]


class DeleteFileArguments(Model):
    """As `Workbench.delete_file`."""

    path: str
    expected_sha256: Sha256


class RenameFileArguments(DeleteFileArguments):
    """As `Workbench.rename_file`."""

    new_path: str


class DiffArguments(Model):
    """As `Workbench.diff`."""

    against: str = "base"


class CheckArguments(Model):
    """As `Workbench.run_checks`."""

    check_ids: Annotated[Sequence[str], Field(min_length=1)]
    runtime: str | None = None
    arguments: Sequence[str] = ()
    expected_tree: str | None = None


class VerifyArguments(Model):
    """As `VerifyOptions`, but for those of `run`, and `expected_tree` as `Workbench.verify`."""

    cache: bool = True
    jobs: int = 1
    keep_going: bool = False
    runtime: str | None = None
    refresh: bool = False
    from_scratch: bool = False
    against: str | None = None
    repeat: int = 1
    shuffle: int | None = None
    expected_tree: str | None = None

    def choose_options(self) -> VerifyOptions:
        return VerifyOptions(**self.model_dump(exclude={"expected_tree"}))


class LookArguments(Model):
    """As `Workbench.look_at_runs`."""

    places: Places = Field(default_factory=dict)


class LayersArguments(Model):
    """As `Workbench.build_layers`."""

    expected_commit: str | None = None
    refresh: bool = False


class MapArguments(Model):
    """As `Workbench.map`."""

    token_budget: int = 1500
    include_globs: Sequence[str] = ()


class CheckLimitsArguments(Model):
    """As `Workbench.check_limits`."""

    check_id: str


class ExploreArguments(Model):
    """As `Workbench.explore` and `ExploreOptions`. `patches`: base64, by name."""

    patches: Mapping[str, Base64Bytes] = {}
    task_ids: Sequence[TaskId] = ()
    jobs: int = 2
    restore: bool = True
    expected_hashes: Mapping[str, Sha256 | None] | None = None
    expected_tree: str | None = None


class SnapshotArguments(Model):
    """As `Workbench.snapshot`."""

    label: str = ""


class RestoreArguments(Model):
    """As `Workbench.restore`."""

    snapshot: str
    expected_tree: str | None = None


class CleanArguments(Model):
    """As `Workbench.clean_task`."""

    without: Sequence[str] = ()
    discard: bool = False
    expected_commit: str | None = None


class CleanStateArguments(Model):
    """What a clean would get. `files`: it is not about a clean, but about a call that acts on the task's files.
    `snapshot`: nor about these, but about a new task that continues from this one.
    """

    without: Sequence[str] = ()
    files: bool = False
    snapshot: str | None = None


class SyncArguments(Model):
    """As `Workbench.sync_task`, but for `fetch`, which is the default: the caller does not see the worker's clone."""

    onto: str | None = None
    resolutions: Sequence[ConflictResolution] = ()
    fetch: bool = True
    expected_tree: str | None = None


class CheckoutArguments(Model):
    """As `Workbench.checkout_task`, but for `fetch`, as above."""

    ref: str
    fetch: bool = True
    expected_tree: str | None = None


class ForkArguments(Model):
    """As `Workbench.fork_named_task`. `fork_id`: the id of the new task; a dispatcher adds it."""

    fork_id: TaskId
    snapshot: str | None = None
    prompt: str | None = None
    with_artifacts: bool = False
    options: TaskOptions | None = None
    expected_tree: str | None = None


class CommitArguments(Model):
    """As `Workbench.commit`."""

    message: str
    allow: Sequence[str] = ()
    expected_tree: str | None = None


class CloseArguments(Model):
    """As `Workbench.close_task`."""

    delete_worktree: bool = False
    discard: bool = False
    expected_tree: str | None = None


class PushArguments(Model):
    """As `Workbench.push`. `commit`: the task's last one; another one is not sent."""

    commit: ObjectId


class OpenPullRequestArguments(PushArguments):
    """As `Workbench.open_pull_request`."""

    title: str = ""
    body: str = ""
    draft: bool = True


@dataclass(frozen=True)
class OperationRow:
    """One operation. `changes`: the task, its files or its runs. `publishes`: with credentials of a forge, so no worker
    carries it out (`sandbox.cluster.publisher`).
    """

    arguments: type[Model]
    perform: Perform
    changes: bool = True
    publishes: bool = False


OPERATIONS: Mapping[OperationName, OperationRow] = {
    OperationName.CREATE: OperationRow(
        CreateArguments,
        lambda bench, task, a, _: bench.create_named_task(
            task,
            a.url,
            a.prompt,
            a.base_branch,
            options=TaskOptions(**a.model_dump(exclude={"url", "prompt", "base_branch"})),
        ),
    ),
    OperationName.READ_FILE: OperationRow(
        ReadFileArguments,
        lambda bench, task, a, _: bench.read_file(task, a.path, a.start_line, a.end_line),
        changes=False,
    ),
    OperationName.EDIT_FILE: OperationRow(
        EditFileArguments, lambda bench, task, a, _: bench.edit_file(task, a.path, a.old, a.new, a.expected_sha256)
    ),
    OperationName.WRITE_FILE: OperationRow(
        WriteFileArguments,
        lambda bench, task, a, _: bench.write_file(task, a.path, a.content, a.expected_sha256, executable=a.executable),
    ),
    OperationName.APPLY_PATCH: OperationRow(
        PatchArguments, lambda bench, task, a, _: bench.apply_patch(task, a.patch, a.expected_hashes)
    ),
    OperationName.DELETE_FILE: OperationRow(
        DeleteFileArguments, lambda bench, task, a, _: bench.delete_file(task, a.path, a.expected_sha256)
    ),
    OperationName.RENAME_FILE: OperationRow(
        RenameFileArguments, lambda bench, task, a, _: bench.rename_file(task, a.path, a.new_path, a.expected_sha256)
    ),
    OperationName.SEARCH: OperationRow(
        SearchQuery, lambda bench, task, query, _: bench.search(task, query), changes=False
    ),
    OperationName.STATUS: OperationRow(NoArguments, lambda bench, task, _, __: bench.status(task), changes=False),
    OperationName.DIFF: OperationRow(
        DiffArguments, lambda bench, task, a, _: bench.diff(task, a.against), changes=False
    ),
    OperationName.LIST_CHECKS: OperationRow(NoArguments, lambda bench, task, _, __: bench.checks(task), changes=False),
    OperationName.CHECK: OperationRow(
        CheckArguments,
        lambda bench, task, a, watch: bench.run_checks(
            task, a.check_ids, watch, runtime=a.runtime, arguments=a.arguments, expected_tree=a.expected_tree
        ),
    ),
    OperationName.VERIFY: OperationRow(
        VerifyArguments,
        lambda bench, task, a, watch: bench.verify(task, watch, a.choose_options(), expected_tree=a.expected_tree),
    ),
    OperationName.EXPLORE: OperationRow(
        ExploreArguments,
        lambda bench, task, a, watch: bench.explore(
            task,
            a.patches,
            a.task_ids,
            watch,
            ExploreOptions(a.jobs, a.restore, a.expected_hashes),
            expected_tree=a.expected_tree,
        ),
    ),
    OperationName.CANDIDATE: OperationRow(
        VerifyArguments,
        lambda bench, task, a, watch: bench.candidate(task, watch, a.choose_options(), expected_tree=a.expected_tree),
    ),
    OperationName.SNAPSHOT: OperationRow(SnapshotArguments, lambda bench, task, a, _: bench.snapshot(task, a.label)),
    OperationName.LIST_SNAPSHOTS: OperationRow(
        NoArguments, lambda bench, task, _, __: bench.snapshots(task), changes=False
    ),
    OperationName.RESTORE: OperationRow(
        RestoreArguments, lambda bench, task, a, _: bench.restore(task, a.snapshot, expected_tree=a.expected_tree)
    ),
    OperationName.CLEAN: OperationRow(
        CleanArguments,
        lambda bench, task, a, _: bench.clean_task(
            task, a.without, discard=a.discard, expected_commit=a.expected_commit
        ),
    ),
    OperationName.CLEAN_STATE: OperationRow(
        CleanStateArguments,
        lambda bench, task, a, _: _find_state(bench, task, a),
        changes=False,
    ),
    OperationName.SYNC: OperationRow(
        SyncArguments,
        lambda bench, task, a, _: windows.bound_conflicts(
            bench.sync_task(task, a.onto, a.resolutions, fetch=a.fetch, expected_tree=a.expected_tree)
        ),
    ),
    OperationName.CHECKOUT: OperationRow(
        CheckoutArguments,
        lambda bench, task, a, _: bench.checkout_task(
            task, a.ref, fetch=a.fetch, expected_tree=a.expected_tree, published=True
        ),
    ),
    OperationName.FORK: OperationRow(
        ForkArguments,
        lambda bench, task, a, _: bench.fork_named_task(
            task, ForkRequest(a.snapshot, a.prompt, a.with_artifacts, a.fork_id, a.options, a.expected_tree)
        ),
    ),
    OperationName.COMMIT: OperationRow(
        CommitArguments,
        lambda bench, task, a, _: bench.commit(task, a.message, a.allow, expected_tree=a.expected_tree),
    ),
    OperationName.CLOSE: OperationRow(
        CloseArguments,
        lambda bench, task, a, _: bench.close_task(
            task, delete_worktree=a.delete_worktree, discard=a.discard, expected_tree=a.expected_tree
        ),
    ),
    OperationName.PUSH: OperationRow(
        PushArguments, lambda bench, task, a, _: bench.push(task, expected_commit=a.commit), publishes=True
    ),
    OperationName.OPEN_PR: OperationRow(
        OpenPullRequestArguments,
        lambda bench, task, a, _: bench.open_pull_request(
            task, a.title, a.body, draft=a.draft, expected_commit=a.commit
        ),
        publishes=True,
    ),
    OperationName.PR_STATUS: OperationRow(
        NoArguments, lambda bench, task, _, __: bench.pull_request_status(task), changes=False, publishes=True
    ),
    OperationName.LIST_RUNS: OperationRow(
        windows.PageArguments, lambda bench, task, a, _: windows.list_runs(bench, task, a), changes=False
    ),
    OperationName.FIND_RUN: OperationRow(
        windows.RunArguments, lambda bench, task, a, _: bench.find_run(task, a.run_id), changes=False
    ),
    OperationName.RUN_LOG: OperationRow(
        windows.RunLogArguments, lambda bench, task, a, _: windows.read_run_log(bench, task, a), changes=False
    ),
    OperationName.READ_LOG: OperationRow(
        windows.ReadLogArguments, lambda bench, task, a, _: windows.read_log(bench, task, a), changes=False
    ),
    OperationName.TEST_RESULTS: OperationRow(
        windows.ResultsArguments, lambda bench, task, a, _: windows.read_results(bench, task, a), changes=False
    ),
    OperationName.USAGE: OperationRow(
        windows.RunArguments, lambda bench, task, a, _: bench.usage(bench.find_run(task, a.run_id)), changes=False
    ),
    OperationName.JOURNAL: OperationRow(
        windows.PageArguments, lambda bench, task, a, _: windows.list_journal(bench, task, a), changes=False
    ),
    OperationName.LOOK: OperationRow(
        LookArguments, lambda bench, task, a, _: bench.look_at_runs(task, a.places), changes=False
    ),
    OperationName.PAST_RUN: OperationRow(
        windows.RunArguments, lambda bench, task, a, _: bench.past_run(bench.find_run(task, a.run_id)), changes=False
    ),
    OperationName.ARTIFACTS: OperationRow(
        windows.RunArguments, lambda bench, task, a, _: bench.artifacts(bench.find_run(task, a.run_id)), changes=False
    ),
    OperationName.READ_ARTIFACT: OperationRow(
        windows.ArtifactArguments, lambda bench, task, a, _: windows.read_artifact(bench, task, a), changes=False
    ),
    OperationName.STOP_CHECKS: OperationRow(
        NoArguments, lambda bench, task, _, __: bench.stop_checks(task), changes=False
    ),
    OperationName.MAP: OperationRow(
        MapArguments,
        lambda bench, task, a, _: bench.map(task, a.token_budget, a.include_globs),
        changes=False,
    ),
    OperationName.IMPACT: OperationRow(NoArguments, lambda bench, task, _, __: bench.impact(task), changes=False),
    OperationName.CHECK_LIMITS: OperationRow(
        CheckLimitsArguments, lambda bench, task, a, _: bench.check_limits(task, a.check_id), changes=False
    ),
    OperationName.FIND_LAUNCH: OperationRow(
        NoArguments, lambda bench, task, _, __: bench.launch_check(task), changes=False
    ),
    OperationName.EXPORT_CHANGES: OperationRow(
        windows.ChangesArguments, lambda bench, task, a, _: windows.read_changes(bench, task, a), changes=False
    ),
    OperationName.LAYERS_BUILD: OperationRow(
        LayersArguments,
        lambda bench, task, a, watch: bench.build_layers(
            task, watch, expected_commit=a.expected_commit, refresh=a.refresh
        ),
    ),
}


def _find_state(
    bench: Workbench, task_id: str, wanted: CleanStateArguments
) -> str | windows.ShownState | windows.SnapshotBase:
    """What an approval is bound to: every call on the files of a task to the same."""
    if wanted.snapshot is not None:
        return windows.SnapshotBase(base=bench.snapshot_base(task_id, wanted.snapshot))
    if not wanted.files:
        return bench.approval_call(CLEANING, {"task_id": task_id, "without": list(wanted.without)}).state
    call = bench.approval_call(COMMITTING, {"task_id": task_id})
    assert call.status is not None  # noqa: S101 - a commit is of files
    return windows.ShownState(state=call.state, status=call.status)


def parse_arguments(operation: TaskOperation) -> Model:
    """Raises: `invalid_input`."""
    try:
        return OPERATIONS[operation.name].arguments.model_validate(operation.arguments)
    except ValidationError as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"The arguments of '{operation.name}' cannot be used",
            details=describe_errors(error),
        ) from error


def dump_value(value: Any) -> Any:
    """A result as plain JSON values."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, tuple):
        return [dump_value(one) for one in value]
    return value
