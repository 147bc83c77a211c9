"""Files of a task as read, and the results of edits."""

from __future__ import annotations

from typing import Literal

from sandbox.models.ids import Sha256
from sandbox.models.model import Model
from sandbox.models.words import ChangeKind


class FileContent(Model):
    """A file or a range of its lines (1-based, inclusive). `sha256` and `size` are of the whole file.

    `truncated`: `content` is not all that was asked for; a range that is complete is not truncated.
    """

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
    """One file that an edit changed. A hash is None if the file was absent. `old_path`: source of a rename or copy."""

    path: str
    kind: ChangeKind
    old_path: str | None = None
    sha256_before: Sha256 | None
    sha256_after: Sha256 | None


class PatchResult(Model):
    """Result of an edit. It has the files' hashes before and after; to return to a state, take a snapshot.

    `adjusted`: how a patch or a text was interpreted differently, e.g. a hunk that matches at another line, CRLF.
    `ignored`: changed files that git ignores here, or that a nested `.git` hides: no diff or commit of the task has
    them; `note` says why.
    """

    files: tuple[PatchedFile, ...]
    adjusted: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    note: str = ""
