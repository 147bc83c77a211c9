"""Tasks."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, Field

from sandbox.models.ids import MAX_BRANCH_CHARS, ObjectId, RepoId, TaskId
from sandbox.models.model import HostPath, Model
from sandbox.models.words import TaskStatus, WorkspaceKind


class TaskOptions(Model):
    """Choices for a new task. `profile`: instead of the repository's. `workspace_kind`: how it keeps its files,
    `worktree` or `tree`: without files on disk until its first check. `branch`: the words of its branch's name,
    `fix-login` for `space-agent/45c2abc0-fix-login`; None: those of its prompt. `expected_choice`: the `state` of
    `Workbench.approval_call`: with another meaning of the profile there is no new task; None: any. On a cluster it is
    compared by the worker, which has its own profiles.
    """

    profile: str | None = None
    branch: str | None = None
    workspace_kind: str = WorkspaceKind.WORKTREE.value
    expected_choice: str | None = Field(default=None, exclude=True)


def _shorten(name: str | None) -> str | None:
    """Of a name that is longer than any, a part: it still is no task's base, so the forge is asked for its own."""
    return name and name[:MAX_BRANCH_CHARS]


class Task(Model):
    """One piece of work on one repository. `profile`: chosen for it; None: that of the repository. `session`: that of
    the agent that created it, as in the journal; empty for a person. `pr_base`, `pr_head`: base and head commit of its
    pull request when the forge last said them. `base_on_remote`: a branch or tag of the remote had the base commit when
    the task began or moved there, other than a pull request or the branch of a task; False in records of older
    versions.
    """

    id: TaskId
    repo_id: RepoId
    prompt: str
    base_branch: str
    branch: str
    base_commit: ObjectId
    base_on_remote: bool = False
    workspace_kind: WorkspaceKind
    worktree_path: HostPath | None
    status: TaskStatus
    head_commit: ObjectId
    profile: str | None = None
    pr_url: str | None = None
    pr_base: Annotated[str | None, AfterValidator(_shorten)] = None
    pr_head: ObjectId | None = None
    forked_from: TaskId | None = None
    created_at: AwareDatetime
    committed_at: AwareDatetime | None = None
    pushed_at: AwareDatetime | None = None
    closed_at: AwareDatetime | None = None
    session: str = ""
