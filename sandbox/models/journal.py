"""Journal entries: what was done to a task or in the home, and who called it."""

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
    """The gate's decision about a tree before it left this host.

    `require`: the setting `gate.require`. `step`: `push`, `draft-pr` or `ready-pr`. `needed`: whether this step needed
    a verified tree. `verified`: whether every check has passed in a clean room on this tree. If this was not needed, it
    is the result of the task's last verification of the tree; None, with `unknown` = `not_asked`, if there was none.
    `missing`: checks that have not passed. `accept`: the setting `gate.accept`, if the tree is not verified;
    `no_new_failures`: whether its comparison with the base has none, if that opens the gate.
    """

    require: Literal["none", "pr-ready", "push", "pr"]
    step: str
    needed: bool
    verified: bool | None = None
    missing: tuple[str, ...] = ()
    unknown: str = ""
    accept: Literal["passed", "no-new-failures"] = "passed"
    no_new_failures: bool | None = None


class Delivery(Model):
    """What was sent or was to be sent. `remote`: its URL, without credentials."""

    remote: str
    branch: str
    commit: ObjectId
    gate: GateState


class JournalEntry(Model):
    """One operation on a task or in the home, including refused ones. It never has contents, messages or secrets.

    `by`: the user, program or agent; None in entries of older versions. `arguments`: digest of the canonical JSON of
    all arguments. `names`: the first paths, checks or ids of the operation. `before`, `after`: working trees, if the
    operation had them; an edit has its `files` instead. `allowed`: why an agent's call was allowed. `sent`: what left
    this host. `tenant`: the setting `container.tenant`, if there is one. `facts`: other facts, by name. `result`: `ok`,
    or the code of the error.
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
    tenant: str | None = None
    facts: dict[str, str] = Field(default_factory=dict)
    result: str
    duration_s: float
