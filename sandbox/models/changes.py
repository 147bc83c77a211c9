"""Differences of trees, and the results of status, diff, commit and push."""

from __future__ import annotations

from pydantic import Field

from sandbox.models.ids import CheckId, ObjectId, Sha256
from sandbox.models.model import Model
from sandbox.models.words import ChangeKind


class Change(Model):
    """One changed path; `sha256` is None for a deletion."""

    path: str
    kind: ChangeKind
    old_path: str | None = None
    sha256: Sha256 | None = None


class Status(Model):
    """The task's working state compared with its head (`changes`, `dirty`) and base (`ahead`: number of commits).

    `rejected`: names that no commit can hold; of more than 100 files beside or below a nested `.git`, the last entry is
    their number. `running`: the checks of the task that run now; files may change until they end.
    """

    branch: str
    head_commit: ObjectId
    base_commit: ObjectId
    ahead: int
    dirty: bool
    changes: tuple[Change, ...]
    rejected: tuple[str, ...] = ()
    running: tuple[CheckId, ...] = ()


class DiffFile(Model):
    """One file of a diff. `additions`/`deletions` are None for binary content and for files too large to compare."""

    path: str
    kind: ChangeKind
    old_path: str | None = None
    additions: int | None
    deletions: int | None
    sha256: Sha256 | None = None


class Diff(Model):
    """A unified diff and its files. `truncated`: `text` is cut; `files` is always complete.

    `impact`: a line for each class of the profile that has a file here: when such an edit takes effect. `running`:
    as in a `Status`. `lossy`: files with bytes that are not UTF-8, as in Latin-1: `text` has U+FFFD in their place, so
    it is no patch of these.
    """

    text: str
    files: tuple[DiffFile, ...]
    truncated: bool
    impact: tuple[str, ...] = ()
    running: tuple[CheckId, ...] = ()
    lossy: tuple[str, ...] = ()


class CommitResult(Model):
    """A new commit on the task's branch. `note`: what it leaves out, and a remark if its author is unusual. `impact`:
    as in a `Diff`.
    """

    commit: ObjectId
    tree: ObjectId
    files: tuple[Change, ...]
    author: str
    note: str | None = None
    impact: tuple[str, ...] = ()


class PushResult(Model):
    """What the remote has now. `forced`: the branch was moved with a lease (`--force-with-lease`). `hooks_not_run`:
    hooks of a remote that is a local path; git would have run them. `note`: that the same call was carried out before.
    """

    branch: str
    commit: ObjectId
    forced: bool
    hooks_not_run: tuple[str, ...] = ()
    note: str = Field(default="", exclude_if=lambda value: not value)
