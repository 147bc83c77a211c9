"""Questions to a person, and their answers."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import StringConstraints

from sandbox.models.ids import RepoId, Sha256, TaskId
from sandbox.models.model import Model


class ApprovalState(StrEnum):
    """Where a question to a person stands. An approval for one call is `used` by it."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    USED = "used"
    REVOKED = "revoked"
    EXPIRED = "expired"


class ApprovalScope(StrEnum):
    """What an approval is for: one call with exactly these arguments, or a tool within a task or repository."""

    ONCE = "once"
    TASK = "task"
    REPOSITORY = "repository"


class Approval(Model):
    """A question to a person about one call of an agent, and its answer.

    `fingerprint`: over tool, canonical arguments, the state of the task and the policy. `arguments`: canonical JSON.
    `question`: what the person needs to know, whole; guest text among it is neutralised. `decided_by`: who, and how.
    `policy`: version of the approval policy it was asked under.
    """

    id: Annotated[str, StringConstraints(pattern=r"^apr-[a-z2-7]{26}$")]
    tool: str
    fingerprint: Sha256
    policy: str
    arguments: str
    task_id: TaskId | None = None
    repo_id: RepoId | None = None
    question: tuple[str, ...]
    state: ApprovalState = ApprovalState.PENDING
    scope: ApprovalScope = ApprovalScope.ONCE
    created_at: datetime
    expires_at: datetime
    decided_at: datetime | None = None
    decided_by: str = ""
