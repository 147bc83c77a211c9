"""When a call of an agent may go on: fingerprints, and which approval covers which call. Pure.

An approval for one call is bound to the tool, the canonical JSON of its validated arguments, the state of the task it
is about, and the policy it was asked under. One for a tool within a task or repository is bound to those instead.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sandbox.models import Approval, ApprovalScope, ApprovalState


@dataclass(frozen=True)
class Call:
    """One call. `arguments`: as validated, defaults filled in. `state`: git object the call acts on; '' for none."""

    tool: str
    arguments: Mapping[str, Any]
    policy: str
    task_id: str | None = None
    repo_id: str | None = None
    state: str = ""


def canonical(arguments: Mapping[str, Any]) -> str:
    """One spelling a value: sorted keys, no white space, ASCII."""
    return json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def fingerprint(call: Call) -> str:
    """Changes with anything that makes it another call."""
    bound = {
        "tool": call.tool,
        "arguments": call.arguments,
        "policy": call.policy,
        "task_id": call.task_id,
        "repo_id": call.repo_id,
        "state": call.state,
    }
    return f"sha256:{hashlib.sha256(canonical(bound).encode()).hexdigest()}"


def current(approval: Approval, now: datetime) -> Approval:
    """The approval with its state of now: what was not answered or not used in time has expired."""
    if approval.state in {ApprovalState.PENDING, ApprovalState.APPROVED} and approval.expires_at <= now:
        return approval.model_copy(update={"state": ApprovalState.EXPIRED})
    return approval


def is_over(approval: Approval, now: datetime) -> bool:
    """Whether it decides nothing any more: used, taken back or expired. A refusal holds until it expires."""
    return approval.state in {ApprovalState.USED, ApprovalState.REVOKED} or approval.expires_at <= now


def asker(about: Approval | Call) -> str:
    """Who shares a quota of open questions: the calls on one task, else on one repository, else of one tool."""
    return about.task_id or about.repo_id or about.tool


def covers(approval: Approval, call: Call, now: datetime) -> bool:
    """Whether this approval lets this call go on now."""
    same = approval.tool == call.tool and approval.policy == call.policy
    if not same or current(approval, now).state is not ApprovalState.APPROVED:
        return False
    match approval.scope:
        case ApprovalScope.ONCE:
            return approval.fingerprint == fingerprint(call)
        case ApprovalScope.TASK:
            return approval.task_id is not None and approval.task_id == call.task_id
        case ApprovalScope.REPOSITORY:
            return approval.repo_id is not None and approval.repo_id == call.repo_id


def answered(approvals: Iterable[Approval], call: Call, now: datetime) -> Approval | None:
    """The open question about exactly this call, or the refusal of it that still holds: nobody is asked twice."""
    wanted, holding = fingerprint(call), {ApprovalState.PENDING, ApprovalState.DENIED}
    same = (current(a, now) for a in approvals if a.fingerprint == wanted and now < a.expires_at)
    return next((a for a in same if a.state in holding), None)
