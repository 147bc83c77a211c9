"""What was done, to a task or in the home, and who asked for it."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field, PositiveInt

from sandbox.models.callers import Caller, Permission
from sandbox.models.files import PatchedFile
from sandbox.models.ids import ObjectId, Sha256
from sandbox.models.model import Model
from sandbox.models.words import Actor


class GateState(Model):
    """What the gate said about a tree that was about to leave this host.

    `require`: the setting `gate.require`. `step`: `push`, `draft-pr` or `ready-pr`. `needed`: whether this step needed
    a verified tree. `verified`: whether every check has passed in a clean room on this tree. Where it was not needed,
    this is what the task's last verification of the tree said; None, with `unknown` = `not_asked`, when there was none.
    `missing`: checks that have not passed.
    """

    require: Literal["none", "pr-ready", "push", "pr"]
    step: str
    needed: bool
    verified: bool | None = None
    missing: tuple[str, ...] = ()
    unknown: str = ""


class Delivery(Model):
    """What was sent, or was about to be. `remote`: its URL, which never holds credentials."""

    remote: str
    branch: str
    commit: ObjectId
    gate: GateState


class JournalEntry(Model):
    """One operation on a task or in the home, refused ones too. Never holds contents, messages or secrets.

    `by`: the person, program or agent; None in entries of older versions. `arguments`: digest of the canonical JSON of
    all arguments. `names`: the first paths, checks or ids it was about. `before`, `after`: working trees, where the
    operation had them; an edit has its `files` instead. `allowed`: of an agent's call. `sent`: of what left this host.
    `facts`: what else there is to know, by name. `result`: `ok`, or the code of the error.
    `seq`, `prev`: place in the chain of its file (docs/audit.md); None in entries of older versions.
    """

    seq: PositiveInt | None = None
    prev: Sha256 | None = None
    at: datetime
    actor: Actor
    by: Caller | None = None
    operation: str
    arguments: Sha256
    names: tuple[str, ...] = ()
    before: ObjectId | None = None
    after: ObjectId | None = None
    files: tuple[PatchedFile, ...] = ()
    allowed: Permission | None = None
    sent: Delivery | None = None
    facts: dict[str, str] = Field(default_factory=dict)
    result: str
    duration_s: float
