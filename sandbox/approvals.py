"""When a call of an agent is allowed: fingerprints, and which approval covers which call. Pure.

An approval for one call is bound to the tool, the canonical JSON of its validated arguments, the state of the task it
acts on, and the policy in force at the request. An approval of a tool for a task or repository is bound to the tool,
the policy, and that task or repository.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from sandbox.models import Approval, ApprovalScope, ApprovalState, Status
from sandbox.policy.approvals import is_always_asked

if TYPE_CHECKING:
    from sandbox.models import PullRequest, PushResult

OF_CLUSTER = "task_of_the_cluster"
"""The argument that has the task of a call, if that is not in this home. Its worker says its state."""


@dataclass(frozen=True)
class AgentCall:
    """One call of a tool. `arguments`: validated, with defaults. `state`: what the call acts on, and all that its
    question shows of that: the id of a commit or tree, or the digest of what a choice of a profile changes, and facts
    (`sandbox.workbench.tasks.approved_state`); of a clean also a digest of the paths that it deletes; '' for none.
    `status`: of a state of a task's files, from the same reading; it identifies no call.
    """

    tool: str
    arguments: Mapping[str, Any]
    policy: str
    task_id: str | None = None
    repo_id: str | None = None
    state: str = ""
    status: Status | None = field(default=None, compare=False)


class OutdatedApproval(NamedTuple):
    """An approval that does not cover a call any more. `changed`: what differs since it was asked for, as lines."""

    id: str
    changed: tuple[str, ...]


class DoneCall(NamedTuple):
    """A call that was carried out, the approval that it used up, and its result as of now."""

    approval: Approval
    result: PushResult | PullRequest


def to_canonical_json(arguments: Mapping[str, Any]) -> str:
    """Canonical JSON, the same text for equal values: sorted keys, no white space, ASCII."""
    return json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def fingerprint(call: AgentCall) -> str:
    """Digest of everything that identifies the call."""
    bound = {
        "tool": call.tool,
        "arguments": call.arguments,
        "policy": call.policy,
        "task_id": call.task_id,
        "repo_id": call.repo_id,
        "state": call.state,
    }
    return f"sha256:{hashlib.sha256(to_canonical_json(bound).encode()).hexdigest()}"


def with_current_state(approval: Approval, now: datetime) -> Approval:
    """The approval with its current state: expired if it was not answered or not used in time."""
    if approval.state in {ApprovalState.PENDING, ApprovalState.APPROVED} and approval.expires_at <= now:
        return approval.model_copy(update={"state": ApprovalState.EXPIRED})
    return approval


def is_inactive(approval: Approval, now: datetime) -> bool:
    """Whether the approval has no effect any more: used, revoked or expired. A denial holds until it expires."""
    return approval.state in {ApprovalState.USED, ApprovalState.REVOKED} or approval.expires_at <= now


def is_denial_in_force(approval: Approval, now: datetime) -> bool:
    """Whether exactly this call is denied without a question."""
    return approval.state is ApprovalState.DENIED and now < approval.expires_at


def quota_key(about: Approval | AgentCall) -> str:
    """Key of the quota of open requests: one for the calls on a task, else on a repository, else of a tool."""
    if about.task_id or about.repo_id:
        return about.task_id or about.repo_id or ""
    arguments = json.loads(about.arguments) if isinstance(about, Approval) else about.arguments
    return str(arguments.get(OF_CLUSTER) or about.tool)


def is_once_only(asked: Approval) -> bool:
    """Whether the call is one that a person approves each time: an approval of more than one would not cover it."""
    return is_always_asked(asked.tool, json.loads(asked.arguments))


def covers(approval: Approval, call: AgentCall, now: datetime) -> bool:
    """Whether this approval allows this call now."""
    same = approval.tool == call.tool and approval.policy == call.policy
    if not same or with_current_state(approval, now).state is not ApprovalState.APPROVED:
        return False
    if approval.scope is not ApprovalScope.ONCE and is_always_asked(call.tool, call.arguments):
        return False
    match approval.scope:
        case ApprovalScope.ONCE:
            return approval.fingerprint == fingerprint(call)
        case ApprovalScope.TASK:
            return approval.task_id is not None and approval.task_id == call.task_id
        case ApprovalScope.REPOSITORY:
            return approval.repo_id is not None and approval.repo_id == call.repo_id


def find_outdated(approvals: Iterable[Approval], call: AgentCall, now: datetime) -> Approval | None:
    """The newest approval for one call that was for the same tool and arguments, and for another state or policy; None
    without one. It covers no call until what it was given for is so again.
    """
    text, digest = to_canonical_json(call.arguments), fingerprint(call)
    about = (call.tool, call.task_id, call.repo_id, text)
    found = (a for a in approvals if (a.tool, a.task_id, a.repo_id, a.arguments) == about and a.fingerprint != digest)
    once = (a for a in found if a.scope is ApprovalScope.ONCE)
    in_force = (a for a in once if with_current_state(a, now).state is ApprovalState.APPROVED)
    return max(in_force, key=lambda a: a.created_at, default=None)


def find_ended(approvals: Iterable[Approval], call: AgentCall, now: datetime) -> Approval | None:
    """The newest approval for exactly this call that was used up, or that ended unused; None without one."""
    digest = fingerprint(call)
    same = (with_current_state(a, now) for a in approvals if a.fingerprint == digest and a.scope is ApprovalScope.ONCE)
    given = (a for a in same if a.decided_at is not None and a.state in {ApprovalState.USED, ApprovalState.EXPIRED})
    return max(given, key=lambda a: a.created_at, default=None)


def find_answered_request(approvals: Iterable[Approval], call: AgentCall, now: datetime) -> Approval | None:
    """Find the open request for exactly this call, or its denial that still holds, so that no question is repeated."""
    digest, holding = fingerprint(call), {ApprovalState.PENDING, ApprovalState.DENIED}
    same = (with_current_state(a, now) for a in approvals if a.fingerprint == digest and now < a.expires_at)
    return next((a for a in same if a.state in holding), None)
