"""Results of moving a task to another commit, and of bringing its result into a person's directory."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from sandbox.models.changes import Status
from sandbox.models.ids import ObjectId, TaskId
from sandbox.models.model import HostPath, Model
from sandbox.models.snapshots import Snapshot
from sandbox.models.words import ChangeKind


class ConflictKind(StrEnum):
    """What the two sides did to one path, in the words of `git status`. "us" is the task, "them" the other commit."""

    BOTH_MODIFIED = "both_modified"
    BOTH_ADDED = "both_added"
    BOTH_DELETED = "both_deleted"
    ADDED_BY_US = "added_by_us"
    ADDED_BY_THEM = "added_by_them"
    DELETED_BY_US = "deleted_by_us"
    DELETED_BY_THEM = "deleted_by_them"
    FILE_OR_DIRECTORY = "file_or_directory"


class ConflictSide(Model):
    """What a side has at the path: git's mode (`100644`, `100755`, `120000`) and the blob's id."""

    mode: str
    blob: ObjectId


class MergeConflict(Model):
    """A path that a merge could not decide. A side without this path is None.

    `merged`: the text with conflict markers; None if it is no text, or too long. `excerpt`: then its conflicting lines
    only, each part after a line `@@ line N @@` with its first line in the task's file; it is no answer to the conflict.
    """

    path: str
    kind: ConflictKind
    base: ConflictSide | None
    ours: ConflictSide | None
    theirs: ConflictSide | None
    merged: str | None = None
    excerpt: str | None = None


class ConflictResolution(Model):
    """How to resolve one conflict: `take` a side, or use `content`. `ours`, `theirs`: the blobs of the conflict that it
    answers, None for a side without the path.
    """

    path: str
    ours: ObjectId | None
    theirs: ObjectId | None
    take: Literal["ours", "theirs"] | None = None
    content: str | None = None


class SyncState(StrEnum):
    """What a sync did. With `conflicts` the task is unchanged."""

    UP_TO_DATE = "up_to_date"
    SYNCED = "synced"
    CONFLICTS = "conflicts"


class SyncResult(Status):
    """The status after a sync with the commit `onto`. `previous`: the snapshot of the changes before, None for none.

    `conflicts`: those without a resolution. `note`: what has to be done elsewhere because of it,
    or how to resolve conflicts that are not shown whole.
    """

    state: SyncState
    onto: ObjectId
    previous: Snapshot | None = None
    conflicts: tuple[MergeConflict, ...] = ()
    note: str = ""


class CheckoutResult(Status):
    """The status after a checkout. `previous`: the snapshot of the changes before, None if there were none."""

    base_branch: str
    previous: Snapshot | None = None


class AppliedFile(Model):
    """One file that an apply writes or removes. `flags`: rules of the path policy that cover it, such as `ci`.

    `already`: the directory has this state.
    """

    path: str
    kind: ChangeKind
    flags: tuple[str, ...] = ()
    already: bool = False


class ApplyResult(Model):
    """What an apply did in a directory, or with `dry_run` would do. `commit`: the commit that was applied, None for the
    working state. `uncommitted`: number of the task's uncommitted changes that were left out.
    """

    task_id: TaskId
    directory: HostPath
    dry_run: bool
    base_commit: ObjectId
    commit: ObjectId | None
    tree: ObjectId
    files: tuple[AppliedFile, ...]
    uncommitted: int = 0
