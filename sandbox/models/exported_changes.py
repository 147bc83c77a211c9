"""The result of a task as one document, to be applied on another host."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Base64Bytes, Field, StringConstraints

from sandbox.models.ids import ObjectId
from sandbox.models.model import Model

MOST_FILES, MOST_CHARACTERS = 10_000, 3 * 4096
"""Of a document, and of a path in it, in which a byte may be written as three."""


class ExportedFile(Model):
    """One file that a task changed. `content`: None: it was deleted; of a symlink its target. `mode`: of git."""

    path: Annotated[str, StringConstraints(max_length=MOST_CHARACTERS)]
    content: Base64Bytes | None
    mode: Literal["100644", "100755", "120000"] = "100644"


class ExportedChanges(Model):
    """A task's result, to be applied on another host: what turns `base_commit` into `tree`. `commit`, `uncommitted`: as
    of an `ApplyResult`.
    """

    schema_version: int = 1
    base_commit: ObjectId
    commit: ObjectId | None
    tree: ObjectId
    files: Annotated[tuple[ExportedFile, ...], Field(max_length=MOST_FILES)]
    uncommitted: int = 0
