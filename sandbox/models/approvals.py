"""Approval requests of agents, and the answers of users."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, StringConstraints

from sandbox.models.callers import Caller
from sandbox.models.ids import RepoId, Sha256, TaskId
from sandbox.models.model import Model
from sandbox.models.words import ApprovalScope, ApprovalState


class Approval(Model):
    """A question to the user about one call of an agent, and the answer.

    `fingerprint`: digest of tool, canonical arguments, the state of the task and the policy. `arguments`: canonical
    JSON. `question`: everything the user needs to know; guest text in it is neutralised. `decided_by`: who decided, and
    how. `policy`: version of the approval policy at the request. `asked_by`: the user that the agent acts for.
    `decider`: the user who decided. `surface`: where; None or '' in records of older versions and before the decision.
    `acts_on`: the commit or tree that the call was to act on, and the facts that the question shows of it; '' for a
    call on no task, and in records of older versions.
    """

    id: Annotated[str, StringConstraints(pattern=r"^apr-[a-z2-7]{26}$")]
    tool: str
    fingerprint: Sha256
    policy: str
    arguments: str
    acts_on: str = ""
    task_id: TaskId | None = None
    repo_id: RepoId | None = None
    question: tuple[str, ...]
    state: ApprovalState = ApprovalState.PENDING
    scope: ApprovalScope = ApprovalScope.ONCE
    created_at: AwareDatetime
    expires_at: AwareDatetime
    decided_at: AwareDatetime | None = None
    decided_by: str = ""
    asked_by: Caller | None = None
    decider: Caller | None = None
    surface: Literal["", "cli", "python", "elicitation"] = ""
    used_at: AwareDatetime | None = None
