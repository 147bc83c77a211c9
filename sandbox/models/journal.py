"""What was done to a task, and who asked for it."""

from __future__ import annotations

from datetime import datetime

from sandbox.models.files import PatchedFile
from sandbox.models.ids import ObjectId, Sha256
from sandbox.models.model import Model
from sandbox.models.words import Actor


class JournalEntry(Model):
    """One operation on a task, refused ones too. Never holds contents, messages or secrets.

    `arguments`: digest of the canonical JSON of all arguments. `names`: the first paths, checks or ids it was about.
    `before`, `after`: working trees, where the operation had them; an edit has its `files` instead.
    `result`: `ok`, or the code of the error.
    """

    at: datetime
    actor: Actor
    operation: str
    arguments: Sha256
    names: tuple[str, ...] = ()
    before: ObjectId | None = None
    after: ObjectId | None = None
    files: tuple[PatchedFile, ...] = ()
    result: str
    duration_s: float
