"""Kept states of a task."""

from __future__ import annotations

from datetime import datetime

from sandbox.models.changes import Status
from sandbox.models.ids import ObjectId, SnapshotId
from sandbox.models.model import Model


class Snapshot(Model):
    """A kept working state of a task: a commit on its head, never pushed.

    `rejected`: names that no tree can hold and that were left out; known only to who takes it.
    """

    id: SnapshotId
    tree: ObjectId
    commit: ObjectId
    created_at: datetime
    label: str = ""
    rejected: tuple[str, ...] = ()


class Cleaned(Status):
    """The status after a clean. `tree`: what the files are. `previous`: a snapshot of it, None when none was taken."""

    tree: ObjectId
    previous: Snapshot | None


class Restored(Status):
    """The status after a restore to `tree`. `previous`: the snapshot that keeps the state before it."""

    tree: ObjectId
    previous: Snapshot
