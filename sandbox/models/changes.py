"""How trees differ, and what became of it: status, diff, commit, push."""

from __future__ import annotations

from enum import StrEnum

from sandbox.models.ids import ObjectId, Sha256
from sandbox.models.model import Model


class ChangeKind(StrEnum):
    """How a path differs between two trees."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"
    RENAMED = "renamed"
    TYPE_CHANGED = "type_changed"


class Change(Model):
    """One changed path; `sha256` is None for a deletion."""

    path: str
    kind: ChangeKind
    old_path: str | None = None
    sha256: Sha256 | None = None


class Status(Model):
    """The task's working state against its head (`changes`, `dirty`) and base (`ahead`: commits)."""

    branch: str
    head_commit: ObjectId
    base_commit: ObjectId
    ahead: int
    dirty: bool
    changes: tuple[Change, ...]
    rejected: tuple[str, ...] = ()


class DiffFile(Model):
    """One file of a diff. `additions`/`deletions` are None for binary content and for files too large to compare."""

    path: str
    kind: ChangeKind
    old_path: str | None = None
    additions: int | None
    deletions: int | None
    sha256: Sha256 | None = None


class Diff(Model):
    """A unified diff and its files. `truncated`: lines are missing; `files` is complete in any case."""

    text: str
    files: tuple[DiffFile, ...]
    truncated: bool


class CommitResult(Model):
    """A new commit on the task's branch. `note`: what is unusual about its author."""

    commit: ObjectId
    tree: ObjectId
    files: tuple[Change, ...]
    author: str
    note: str | None = None


class PushResult(Model):
    """What the remote now holds. `forced`: the branch moved with a lease."""

    branch: str
    commit: ObjectId
    forced: bool
