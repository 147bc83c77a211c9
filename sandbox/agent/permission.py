"""Whether a call is permitted without asking its client: by the policy, or by what a person approved before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from sandbox.agent.inputs import NOT_APPROVED
from sandbox.agent.outputs import ApprovalResult
from sandbox.agent.tools import Tool
from sandbox.approvals import AgentCall
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Approval, ApprovalState, Permission
from sandbox.policy.approvals import CONTINUING, Decision, is_always_asked
from sandbox.workbench.approvals.permissions import approval_required_error, permission_by_approval

if TYPE_CHECKING:
    from sandbox.agent.agent import Agent


@dataclass(frozen=True)
class PermittedCall:
    """The call is permitted. `permission`: by which rule or person. `state`: the state that was approved; the call is
    refused if it has changed by then. `answer`: the call was carried out before, and is not again; its result.
    """

    permission: Permission
    state: str | None = None
    answer: BaseModel | None = None


def permit_out_of_band(agent: Agent, tool: Tool, arguments: Any) -> PermittedCall:
    """As `require_approval`, for clients that show no questions: a person answers with `sandbox approvals`.

    Raises: `approval_denied`; `approval_required`.
    """
    if not must_ask(agent, tool, arguments):
        return PermittedCall(permission_by_policy(agent, tool))
    call = build_call(agent, tool, arguments)
    if how := find_exemption(agent, call):
        return PermittedCall(Permission(how=how), call.state or None)
    if taken := agent.workbench.take_approval(call):
        return PermittedCall(permission_by_approval(taken), call.state or None)
    if done := find_done(agent, call):
        return done
    raise required_error(agent, call, agent.workbench.request_approval(call))


def required_error(agent: Agent, call: AgentCall, asked: Approval) -> SandboxError:
    """A question about the call waits; also why, if the person gave an approval that no longer covers it."""
    return approval_required_error(asked, outdated=agent.workbench.find_outdated_approval(call))


def find_done(agent: Agent, call: AgentCall) -> PermittedCall | None:
    """For a call that a person approved and that was carried out: its answer as of now. None for another call."""
    done = agent.workbench.find_done_call(call)
    if done is None:
        return None
    by = permission_by_approval(done.approval)
    return PermittedCall(by.model_copy(update={"how": "known"}), call.state or None, done.result)


def find_exemption(agent: Agent, call: AgentCall) -> Literal["known", "diff"] | None:
    """Why a person need not be asked about this call, though the policy says `ask` for its tool."""
    if agent.workbench.needs_no_question(call):
        return "known"
    return "diff" if agent.workbench.is_allowed_by_diff(call) else None


def permit_without_asking(agent: Agent, tool: Tool) -> Permission:
    """Permission for a protocol request that does the same as a tool but cannot ask a person.

    Raises: `approval_denied`; `approval_required` if the policy asks for approval of the tool.
    """
    if not must_ask(agent, tool):
        return permission_by_policy(agent, tool)
    raise SandboxError(
        ErrorCode.APPROVAL_REQUIRED,
        f"A person has to approve {tool.name}",
        hint=f"Call {tool.name} instead; it can ask for approval.",
    )


def permission_by_policy(agent: Agent, tool: Tool) -> Permission:
    is_allowed = agent.workbench.approval_decision(tool.name, tool.risk) is Decision.ALLOW
    return Permission(how="policy" if is_allowed else "auto")


def request_approval(agent: Agent, tool: Tool, arguments: Any) -> ApprovalResult:
    """Request approval before the call is made, unless it is approved already; that is not used up.

    Raises: `approval_denied` when the policy denies the tool, or a person denied the call.
    """
    if not must_ask(agent, tool, arguments):
        return ApprovalResult(id="", state=ApprovalState.APPROVED)
    call = build_call(agent, tool, arguments)
    if find_exemption(agent, call):
        return ApprovalResult(id="", state=ApprovalState.APPROVED)
    asked = agent.workbench.find_approval(call) or agent.workbench.request_approval(call)
    return ApprovalResult(id=asked.id, state=asked.state)


def must_ask(agent: Agent, tool: Tool, arguments: Any = None) -> bool:
    """Whether a person has to approve a call. `arguments`: its input model. Raises: `approval_denied`; as
    `Workbench.inherited_profile`.
    """
    decision = agent.workbench.approval_decision(tool.name, tool.risk)
    if decision is Decision.DENY:
        raise approval_denied_error(tool.name, "The approval policy denies it")
    given = {} if arguments is None else dict(arguments)
    if is_always_asked(tool.name, given) or (decision is Decision.ASK and agent.approvals != "auto"):
        return True
    return may_inherit_profile(tool, arguments) and agent.workbench.inherited_profile(tool.name, given) is not None


def may_inherit_profile(tool: Tool, arguments: Any) -> bool:
    """Whether the call makes a task that continues from another one: `must_ask` then reads that one's record. Pure."""
    return getattr(arguments, CONTINUING.get(tool.name, ""), None) is not None


def build_call(agent: Agent, tool: Tool, arguments: Any) -> AgentCall:
    """The call that a person is asked about."""
    given = arguments.model_dump(mode="json", exclude=NOT_APPROVED)
    return agent.workbench.approval_call(tool.name, given)


def approval_denied_error(tool: str, why: str) -> SandboxError:
    return SandboxError(
        ErrorCode.APPROVAL_DENIED, f"{tool} was not approved", details=why, hint="Do without it, or ask the person."
    )
