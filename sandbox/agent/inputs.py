"""The input model of each tool. Strict: a wrong type, an unknown field or a missing one is `invalid_input`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sandbox.models import ObjectId, RepoId, Sha256, TaskId

MAX_TEXT = 8 * 1024**2
"""Maximum characters of a patch or a file; larger changes need several calls."""

MOST_TASKS = 100
"""Ids in one call."""

Prompt = Annotated[str, Field(max_length=4000)]
Text = Annotated[str, Field(max_length=MAX_TEXT)]
Line = Annotated[str, Field(max_length=4096)]
ReadSha256 = Annotated[Sha256, Field(description="As read, or sha256_after of your last edit.")]
Path = Annotated[str, Field(max_length=4096)]
Lines = Annotated[tuple[Line, ...], Field(max_length=100, strict=False)]
"""A list in JSON: strict validation would take a tuple only."""


class Input(BaseModel):
    """Base of every tool's arguments."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class NoInput(Input):
    """No arguments."""


class CloneInput(Input):
    url: Line = Field(description="https or ssh address.")


class FetchInput(Input):
    url: Line
    ref: Line = Field("HEAD", description="Branch, tag, commit or pr/NUMBER.")
    subpath: Path | None = Field(None, description="Only this directory.")


class UpdateInput(Input):
    repo_id: RepoId


class MapInput(Input):
    repo_id: RepoId | None = Field(None, description="Either this or task_id.")
    task_id: TaskId | None = None
    token_budget: int = Field(1500, ge=1, le=100_000, description="4 characters each.")
    include_globs: Lines = Field((), description="Only these paths.")


class CreateTaskInput(Input):
    repo_id: RepoId
    prompt: Prompt = Field(description="What the task is for.")
    base_branch: Line | None = None
    ref: Line | None = Field(None, description="Branch, tag, commit or pr/NUMBER.")
    profile: Line | None = Field(None, description="Instead of the repository's; a person is asked.")
    branch: Line | None = Field(None, description="Words of its name; default: the prompt.")
    workspace_kind: Literal["worktree", "tree"] = "worktree"
    from_snapshot: Line | None = Field(None, description="Or: a snapshot of any task.")
    offline: bool = Field(False, description="Do not fetch.")


class ListTasksInput(Input):
    repo_id: RepoId | None = None


class CloseTaskInput(Input):
    task_id: TaskId
    delete_worktree: bool = Field(False, description="Refused if its files have changes.")
    discard: bool = Field(False, description="Lose uncommitted changes.")


class TaskInput(Input):
    task_id: TaskId


class DiffInput(Input):
    task_id: TaskId
    against: Literal["base", "head"] = Field("base")


class ReadFileInput(Input):
    task_id: TaskId | None = None
    repo_id: RepoId | None = Field(None, description="Or: a fetched commit.")
    ref: Line = Field("HEAD", description="With repo_id.")
    path: Path
    start_line: int | None = Field(None, ge=1)
    end_line: int | None = Field(None, ge=1)


class SearchInput(Input):
    task_id: TaskId | None = None
    repo_id: RepoId | None = Field(None, description="Or: a fetched commit.")
    ref: Line = "HEAD"
    pattern: Line | None = None
    glob: Line | None = Field(None, description="Only these paths; alone: list them.")
    regex: bool = False
    max_results: int = Field(200, ge=1, le=2000)


class ApplyPatchInput(Input):
    task_id: TaskId
    patch: Text = Field(description="With a/ and b/ prefixes.")
    expected_hashes: dict[Path, Sha256 | None] = Field(description="By path: the sha256 as read, null for a new file.")


class EditFileInput(Input):
    task_id: TaskId
    path: Path
    old: Text
    new: Text
    expected_sha256: ReadSha256


class WriteFileInput(Input):
    task_id: TaskId
    path: Path
    content: Text
    expected_sha256: Sha256 | None = Field(description="As read, or sha256_after of your last edit; null: a new file.")


class DeleteFileInput(Input):
    task_id: TaskId
    path: Path
    expected_sha256: ReadSha256


class RenameFileInput(Input):
    task_id: TaskId
    path: Path
    new_path: Path
    expected_sha256: ReadSha256


class ListChecksInput(Input):
    repo_id: RepoId | None = Field(None, description="Either this or task_id.")
    task_id: TaskId | None = None


LogName = Annotated[str, Field(pattern=r"^(stdout|stderr|service-[a-z][a-z0-9-]{0,23})$")]
WaitS = Annotated[float, Field(ge=0, le=3600)]
"""How long a call waits; the run continues after it."""

NOT_APPROVED = frozenset({"wait_s"})
"""Arguments that change only when a call is answered, and not what it does: a question leaves them out, and an approval
is for any of their values."""

RunId = Line


class RunCheckInput(Input):
    task_id: TaskId
    check_id: Line = Field(description="From space_repo_list_checks.")
    arguments: Lines = Field((), description="For a part, by the check's parameters.")
    wait_s: WaitS = 45


class PrepareInput(Input):
    task_id: TaskId | None = None
    repo_id: RepoId | None = Field(None, description="Or: its default branch.")
    wait_s: WaitS = 45

    @model_validator(mode="after")
    def _require_one_owner(self) -> Self:
        if (self.task_id is None) == (self.repo_id is None):  # before a person is asked
            raise ValueError("Give either repo_id or task_id")
        return self


class VerifyInput(Input):
    task_id: TaskId
    against: Line | None = Field(None, description="Name new failures since base, a commit or task.")
    wait_s: WaitS = 45


class LongTaskInput(Input):
    task_id: TaskId
    wait_s: WaitS = 45


class WaitRunInput(Input):
    run_id: RunId
    wait_s: WaitS = 45


class StopRunInput(Input):
    run_id: RunId


class ReadLogInput(Input):
    run_id: RunId
    stream: LogName = Field("stdout", description="stdout, stderr or service-NAME.")
    pattern: Line | None = Field(None, description="PCRE.")
    start_line: int | None = Field(None, ge=1, description="Default: the last lines.")
    end_line: int | None = Field(None, ge=1)


class TestResultsInput(Input):
    __test__ = False  # not a pytest class

    run_id: RunId
    failed_only: bool = True
    cursor: int = Field(0, ge=0, description="next_cursor of the page before.")


class ExploreInput(Input):
    task_id: TaskId
    patches: dict[Line, Text] = Field(default_factory=dict, description="Unified diffs by name.")
    expected_hashes: dict[Path, Sha256] = Field(default_factory=dict, description="Of files they change.")
    task_ids: tuple[TaskId, ...] = Field((), strict=False, max_length=MOST_TASKS)
    wait_s: WaitS = 45


class CommitInput(Input):
    task_id: TaskId
    message: Annotated[str, Field(max_length=64 * 1024)]
    allow: Lines = Field((), description="New files to commit although they look built.")


class OpenPullRequestInput(Input):
    task_id: TaskId
    title: Annotated[str, Field(max_length=1000)] = Field(description="Empty: first line of the first commit.")
    body: Annotated[str, Field(max_length=64 * 1024)] | None = Field(
        None, description="The record of the task is added."
    )
    draft: bool = Field(True, description="false needs a verified tree.")


class SnapshotInput(Input):
    task_id: TaskId
    label: Annotated[str, Field(max_length=200)] = ""


class CleanInput(Input):
    task_id: TaskId
    without: Lines = Field((), description="New paths to delete too.")


class RestoreInput(Input):
    task_id: TaskId
    snapshot: Line = Field(description="Its id, 'head' or 'base'.")


ConflictBlob = Annotated[ObjectId | None, Field(description="Its blob there, or null.")]


class ResolutionInput(Input):
    path: Path
    ours: ConflictBlob
    theirs: ConflictBlob
    take: Literal["ours", "theirs"] | None = Field(None, description="Either this or content.")
    content: Text | None = Field(None, description="The whole merged file.")


class SyncInput(Input):
    task_id: TaskId
    onto: Line | None = Field(None, description="A branch, or a commit of the base branch.")
    resolutions: tuple[ResolutionInput, ...] = Field(
        (), max_length=1000, strict=False, description="One for each conflict."
    )
    offline: bool = Field(False, description="Do not fetch.")


class CheckoutInput(Input):
    task_id: TaskId
    ref: Line = Field(description="Branch, tag, commit or pr/NUMBER.")
    offline: bool = Field(False, description="Do not fetch.")


class ForkInput(Input):
    task_id: TaskId
    snapshot: Line | None = Field(None, description="Default: its files now.")
    prompt: Prompt | None = None
    with_artifacts: bool = False


class RequestApprovalInput(Input):
    tool: Line
    arguments: dict[str, Any] = Field(description="Exactly those of the call.")
