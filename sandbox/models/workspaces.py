"""Workspaces: their kinds, what is asked for, what is listed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sandbox.models.model import HostPath, Model


class Capability(StrEnum):
    """What only some kinds of workspaces can do, named after the method of `Workspace`."""

    SNAPSHOT = "snapshot"
    DIFF = "diff"
    COMMIT = "commit"


class EntryType(StrEnum):
    """What a name in a workspace is. Links are not followed."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    SUBMODULE = "submodule"


class WorkspaceRequest(Model):
    """What to acquire. `hint`: which workspace, in the format of its kind; None: the kind's default. `tenant`: its
    owner; two tenants never share one. `writable`: False refuses every change.
    """

    hint: str | None = None
    tenant: str = ""
    writable: bool = True


@dataclass(frozen=True, slots=True)
class WorkspaceEntry:
    """One name in a workspace. `path`: from its root. `mode`: git's (0o100644, 0o100755, 0o120000, 0o040000, 0o160000).
    `size`: bytes of the content, 0 for directories.
    """

    path: str
    type: EntryType
    mode: int
    size: int


class WorkspaceRecord(Model):
    """One workspace in a listing. `kind`: also of another package. `root`: None for one without a directory, or when
    its files are not there. `problem`: why it cannot be used; None if it can.
    """

    id: str
    kind: str
    hint: str | None
    tenant: str
    root: HostPath | None = None
    problem: str | None = None
