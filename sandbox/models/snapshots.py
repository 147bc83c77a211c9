"""Snapshots of a task, and the results of clean and restore."""

from __future__ import annotations

from pydantic import AwareDatetime

from sandbox.models.changes import Status
from sandbox.models.ids import ObjectId, SnapshotId
from sandbox.models.model import Model


class Snapshot(Model):
    """A saved working state of a task: a commit on its head, never pushed.

    `rejected`: names that a tree cannot contain, which were left out; only in the answer of the call that takes it.
    """

    id: SnapshotId
    tree: ObjectId
    commit: ObjectId
    created_at: AwareDatetime
    label: str = ""
    rejected: tuple[str, ...] = ()


class CleanResult(Status):
    """The status after a clean. `tree`: tree of the files. `previous`: its snapshot, None if none was taken."""

    tree: ObjectId
    previous: Snapshot | None


class RestoreResult(Status):
    """The status after a restore to `tree`. `previous`: the snapshot of the state before."""

    tree: ObjectId
    previous: Snapshot
