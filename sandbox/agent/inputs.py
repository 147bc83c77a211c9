"""The input model of each tool. Strict: a wrong type, an unknown field or a missing one is `invalid_input`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sandbox.models import ObjectId, RepoId, Sha256, TaskId

MAX_TEXT = 8 * 1024**2
"""Maximum characters of a patch or a file; larger changes need several calls."""

Prompt = Annotated[str, Field(max_length=4000)]
Text = Annotated[str, Field(max_length=MAX_TEXT)]
Line = Annotated[str, Field(max_length=4096)]
Path = Annotated[str, Field(max_length=4096, description="Relative to the repository's root, with / between names.")]


class Input(BaseModel):
    """Base of every tool's arguments."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class NoInput(Input):
    """No arguments."""


class CloneInput(Input):
    url: Line = Field(description="https or ssh address of the repository.")


class FetchInput(Input):
    url: Line = Field(description="https or ssh address of the repository.")
    ref: Line = Field("HEAD", description="Branch, tag, commit id or pr/NUMBER.")
    subpath: Path | None = Field(None, description="Only this directory of it.")


class UpdateInput(Input):
    repo_id: RepoId


class MapInput(Input):
    repo_id: RepoId | None = Field(None, description="Either this or task_id.")
    task_id: TaskId | None = Field(None, description="Either this or repo_id.")
    token_budget: int = Field(1500, ge=1, le=100_000, description="Maximum tokens of the map, 4 characters each.")
    include_globs: tuple[Line, ...] = Field((), max_length=100, strict=False, description="Only these paths.")


class CreateTaskInput(Input):
    repo_id: RepoId
    prompt: Prompt = Field(description="What the task is for.")
    base_branch: Line | None = Field(None, description="Default: the repository's default branch.")
    workspace_kind: Literal["worktree"] = "worktree"
    from_snapshot: Line | None = Field(
        None, description="Instead of base_branch: start from this snapshot, of any task of the repository."
    )
    offline: bool = Field(False, description="Start from the last fetch: do not ask the remote for new commits.")


class ListTasksInput(Input):
    repo_id: RepoId | None = None


class CloseTaskInput(Input):
    task_id: TaskId
    delete_worktree: bool = Field(False, description="Delete its files too; refused if they have changes.")
    discard: bool = Field(False, description="With delete_worktree: lose uncommitted changes.")


class TaskInput(Input):
    task_id: TaskId


class DiffInput(Input):
    task_id: TaskId
    against: Literal["base", "head"] = Field("base", description="The task's base commit or its last commit.")


class ReadFileInput(Input):
    task_id: TaskId
    path: Path
    start_line: int | None = Field(None, ge=1, description="From 1.")
    end_line: int | None = Field(None, ge=1, description="Inclusive.")


class SearchInput(Input):
    task_id: TaskId
    pattern: Line | None = Field(None, description="Text, or a regular expression with regex=true.")
    glob: Line | None = Field(None, description="Only these paths; without pattern: list them.")
    regex: bool = False
    max_results: int = Field(200, ge=1, le=2000)


class ApplyPatchInput(Input):
    task_id: TaskId
    patch: Text = Field(description="A unified diff, one or several files, with a/ and b/ prefixes.")
    expected_hashes: dict[Path, Sha256 | None] = Field(
        description="For each file in the patch: the sha256 from reading it, null for a new file."
    )


class EditFileInput(Input):
    task_id: TaskId
    path: Path
    old: Text = Field(description="Exact text, with white space, that occurs exactly once in the file.")
    new: Text
    expected_sha256: Sha256 = Field(description="The sha256 from reading it, or sha256_after of your last edit.")


class WriteFileInput(Input):
    task_id: TaskId
    path: Path
    content: Text
    expected_sha256: Sha256 | None = Field(
        description="The sha256 from reading the file, or sha256_after of your last edit; null for a new file."
    )


class ListChecksInput(Input):
    repo_id: RepoId | None = Field(None, description="Either this or task_id.")
    task_id: TaskId | None = Field(None, description="Either this or repo_id.")


WaitS = Annotated[float, Field(ge=0, le=3600, description="Seconds to wait for the result; the run continues after.")]
RunId = Annotated[
    Line, Field(description="run_id of a run, from space_repo_run_check, space_repo_verify or space_repo_prepare.")
]


class RunCheckInput(Input):
    task_id: TaskId
    check_id: Line = Field(description="From space_repo_list_checks.")
    arguments: tuple[Line, ...] = Field(
        (), max_length=100, description="To run a part, e.g. one test: as the check's parameters allow."
    )
    wait_s: WaitS = 45.0


class PrepareInput(Input):
    task_id: TaskId
    wait_s: WaitS = 45.0


class VerifyInput(Input):
    task_id: TaskId
    wait_s: WaitS = 45.0


class WaitRunInput(Input):
    run_id: RunId
    wait_s: WaitS = 45.0


class StopRunInput(Input):
    run_id: RunId


class ReadLogInput(Input):
    run_id: Line = Field(description="From space_repo_run_check or space_repo_verify.")
    stream: Literal["stdout", "stderr"] = "stdout"
    pattern: Line | None = Field(None, description="Perl-compatible regular expression: return matching lines.")
    start_line: int | None = Field(None, ge=1, description="From 1. Without it: the last lines.")
    end_line: int | None = Field(None, ge=1, description="Inclusive.")


class CommitInput(Input):
    task_id: TaskId
    message: Annotated[str, Field(max_length=64 * 1024)]


class OpenPullRequestInput(Input):
    task_id: TaskId
    title: Annotated[str, Field(max_length=1000)] = Field(
        description="At most 200 characters; empty: first line of the first commit. For a draft use `draft`."
    )
    body: Annotated[str, Field(max_length=64 * 1024)] | None = Field(
        None, description="Text before the record of the task, which is added: prompt, commits, files, verdicts."
    )
    draft: bool = Field(True, description="False: ready for review; needs a verified tree.")


class SnapshotInput(Input):
    task_id: TaskId
    label: Annotated[str, Field(max_length=200)] = ""


class CleanInput(Input):
    task_id: TaskId
    without: tuple[Path, ...] = Field((), max_length=100, strict=False, description="New files and folders to delete.")


class RestoreInput(Input):
    task_id: TaskId
    snapshot: Line = Field(description="The id of a snapshot, or 'head' or 'base'.")


ConflictBlob = Annotated[ObjectId | None, Field(description="Its blob in the conflict, or null.")]


class ResolutionInput(Input):
    path: Annotated[str, Field(max_length=4096)]
    ours: ConflictBlob
    theirs: ConflictBlob
    take: Literal["ours", "theirs"] | None = Field(None, description="Either this or content.")
    content: Text | None = Field(None, description="The whole merged file.")


class SyncInput(Input):
    task_id: TaskId
    onto: Line | None = Field(None, description="A branch, or a commit of the base branch. Default: the base branch.")
    resolutions: tuple[ResolutionInput, ...] = Field(
        (), max_length=1000, strict=False, description="An answer to each conflict of the call before."
    )
    offline: bool = Field(False, description="Use the last fetch.")


class CheckoutInput(Input):
    task_id: TaskId
    ref: Line = Field(description="Branch, tag, commit id or pr/NUMBER.")
    offline: bool = Field(False, description="Use the last fetch.")


class ForkInput(Input):
    task_id: TaskId
    snapshot: Line | None = Field(None, description="Default: the current working state.")
    prompt: Prompt | None = None


class RequestApprovalInput(Input):
    tool: Line = Field(description="The name of the tool.")
    arguments: dict[str, Any] = Field(description="Exactly the arguments it will be called with.")
