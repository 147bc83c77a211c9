"""Files of a task as read, and as an edit changed them."""

from __future__ import annotations

from typing import Literal

from sandbox.models.changes import ChangeKind
from sandbox.models.ids import Sha256
from sandbox.models.model import Model


class FileContent(Model):
    """A file or a range of its lines (1-based, inclusive). `sha256` and `size` are of the whole file."""

    path: str
    sha256: Sha256
    size: int
    content: str
    encoding: Literal["utf-8", "base64"]
    start_line: int | None
    end_line: int | None
    total_lines: int | None
    truncated: bool


class PatchedFile(Model):
    """One file an edit changed; a None hash: absent on that side. `old_path`: what it was renamed or copied from."""

    path: str
    kind: ChangeKind
    old_path: str | None = None
    sha256_before: Sha256 | None
    sha256_after: Sha256 | None


class PatchResult(Model):
    """What an edit did. The hashes before it are those of the files; a state to come back to is a snapshot's matter.

    `adjusted`: what a patch meant other than it was written, e.g. a hunk that fits at another line than it says.
    """

    files: tuple[PatchedFile, ...]
    adjusted: tuple[str, ...] = ()
