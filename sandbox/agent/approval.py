"""Permit a call over MCP: first by policy (`permission`), then by a person's approval.

The person is asked through the client's elicitation if it has one, and always out of band (`sandbox approvals`). The
first decision counts. A client could answer in place of its user. For certainty, set the tool to `ask` and use a client
without elicitation, so that only `sandbox approvals` can answer. An approval holds for the fingerprint of the call, on
the state it was asked about.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import is_version_at_least
from pydantic import ValidationError

from sandbox.agent.permission import (
    PermittedCall,
    approval_denied_error,
    build_call,
    find_done,
    find_exemption,
    may_inherit_profile,
    must_ask,
    permission_by_policy,
    required_error,
)
from sandbox.agent.tools import Tool
from sandbox.approvals import AgentCall, is_once_only
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Approval, ApprovalScope, ApprovalState, Permission
from sandbox.workbench.approvals.permissions import approval_required_error, permission_by_approval
from sandbox.workbench.tasks.approved_state import ASK_AGAIN

if TYPE_CHECKING:
    from sandbox.agent.agent import Agent

BY_CLIENT = "elicitation"
ANSWER_S = 45.0
"""How long a call waits for the answer of the client's user, as tools wait for a run: most clients give up after 60 s,
and then learn neither that a person has to approve nor the id."""

LOOK_S = 0.5
"""How often a waiting call looks for a decision that was made elsewhere."""

_IN_RESULT = "2026-07-28"  # from this protocol on, questions travel in results
_ONCE, _TASK, _DENY = "approve this call", "approve this tool for this task", "deny"


async def require_approval(
    agent: Agent,
    tool: Tool,
    arguments: Any,
    context: ServerRequestContext[Any, Any],
    params: types.CallToolRequestParams,
) -> PermittedCall | types.InputRequiredResult:
    """Permit the call or return the question.

    Raises: `approval_denied`; `approval_required`, with the `approval_id` in its data.
    """
    asks = partial(must_ask, agent, tool, arguments)
    if not (await _run_in_thread(agent, asks) if may_inherit_profile(tool, arguments) else asks()):
        return PermittedCall(permission_by_policy(agent, tool))
    call = await _run_in_thread(agent, partial(build_call, agent, tool, arguments))
    if how := await _run_in_thread(agent, partial(find_exemption, agent, call)):
        return PermittedCall(Permission(how=how), call.state or None)
    if taken := await _run_in_thread(agent, partial(agent.workbench.take_approval, call)):
        return PermittedCall(permission_by_approval(taken), call.state or None)
    if done := await anyio.to_thread.run_sync(partial(find_done, agent, call), limiter=agent.network_threads):
        return done
    asked = await _run_in_thread(agent, partial(agent.workbench.request_approval, call))
    find_decision = partial(_run_in_thread, agent, partial(_find_decision, agent, call, asked.id))
    answer = await _ask_client(context, params, asked, find_decision) if _can_elicit(context) else None
    if isinstance(answer, types.InputRequiredResult):
        return answer
    if answer is None:
        raise await _run_in_thread(agent, partial(required_error, agent, call, asked))
    if isinstance(answer, Approval):
        answered = answer
    else:
        answered = await _run_in_thread(agent, partial(_record_answer, agent, asked, answer))
    permitted: PermittedCall = await _run_in_thread(
        agent, partial(_permit_answered, agent, tool, arguments, (call, answered))
    )
    return permitted


def _can_elicit(context: ServerRequestContext[Any, Any]) -> bool:
    """Whether the client can show its user a form. A bare `elicitation: {}` means yes; one with only `url` means no."""
    capabilities = context.session.client_capabilities
    offered = capabilities.elicitation if capabilities is not None else None
    return offered is not None and (offered.form is not None or offered.url is None)


async def _ask_client(
    context: ServerRequestContext[Any, Any],
    params: types.CallToolRequestParams,
    asked: Approval,
    find_decision: Callable[[], Awaitable[Approval | None]],
) -> types.ElicitResult | types.InputRequiredResult | Approval | None:
    """The user's choice, or the question for clients that take it in a result and repeat the call with the answer."""
    form = types.ElicitRequestFormParams(message="\n".join(asked.question), requested_schema=_build_form(asked))
    if not is_version_at_least(context.protocol_version, _IN_RESULT):
        return await _wait_for_answer(context, form, find_decision)
    given = (params.input_responses or {}).get(asked.id)  # answers to other questions do not count
    if isinstance(given, types.ElicitResult):
        return given
    return types.InputRequiredResult(input_requests={asked.id: types.ElicitRequest(params=form)})


async def _wait_for_answer(
    context: ServerRequestContext[Any, Any],
    form: types.ElicitRequestFormParams,
    find_decision: Callable[[], Awaitable[Approval | None]],
) -> types.ElicitResult | Approval | None:
    """The answer of the client's user, or the decision that was made elsewhere meanwhile: the client then takes its
    form away. None if the client fails or is gone, and after `ANSWER_S`: the request stays pending and the command line
    can answer it.
    """
    found: list[types.ElicitResult | Approval] = []

    async def ask() -> None:
        with suppress(MCPError, ValidationError):
            found.append(await context.session.elicit_form(form.message, form.requested_schema, context.request_id))
        group.cancel_scope.cancel()

    async def look_elsewhere() -> None:
        while (decided := await find_decision()) is None:
            await anyio.sleep(LOOK_S)
        found.append(decided)
        group.cancel_scope.cancel()

    with anyio.move_on_after(ANSWER_S):
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            group.start_soon(look_elsewhere)
    return found[0] if found else None


def _find_decision(agent: Agent, call: AgentCall, asked_id: str) -> Approval | None:
    """The request once it is decided or over, or another approval that covers the call by now; else None."""
    try:
        asked = agent.workbench.approval(asked_id)
    except SandboxError:  # its record was removed: the client may still answer, and is refused then
        return None
    return asked if asked.state is not ApprovalState.PENDING else agent.workbench.find_approval(call)


def _build_form(asked: Approval) -> dict[str, Any]:
    once_only = is_once_only(asked)
    choices = [_ONCE, *([_TASK] if asked.task_id and not once_only else []), _DENY]
    answer = {"type": "string", "title": "Your decision", "enum": choices, "default": _DENY}
    return {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}


def _record_answer(agent: Agent, asked: Approval, answer: types.ElicitResult) -> Approval:
    given = (answer.content or {}).get("answer") if answer.action == "accept" else None
    chosen = given if isinstance(given, str) else ""
    approved = chosen in {_ONCE, _TASK} and not (chosen == _TASK and asked.task_id is None)
    scope = ApprovalScope.TASK if approved and chosen == _TASK else ApprovalScope.ONCE
    if answer.action == "cancel":
        raise approval_required_error(asked)  # no decision was made: the request stays pending
    return agent.workbench.answer_approval(asked.id, approved=approved, by=BY_CLIENT, scope=scope)


def _permit_answered(agent: Agent, tool: Tool, arguments: Any, asked: tuple[AgentCall, Approval]) -> PermittedCall:
    """`asked`: the call that the person was asked about, and the answer. They may take minutes, and the task may change
    meanwhile: a denial holds all the same, and so does an approval of the tool for the whole task.

    Raises: `approval_denied`; `conflict` if an approval for one call is for another state than that of now.
    """
    call, answered = asked
    if answered.state is ApprovalState.DENIED:
        raise approval_denied_error(tool.name, "The person denied it")
    now = build_call(agent, tool, arguments)
    if answered.scope is ApprovalScope.ONCE and now != call:
        raise SandboxError(
            ErrorCode.CONFLICT, f"What {tool.name} would act on changed while the person was asked", hint=ASK_AGAIN
        )
    taken = agent.workbench.take_approval(now)
    if taken is None:
        raise approval_denied_error(tool.name, "The approval was revoked or used up meanwhile, or has expired")
    return PermittedCall(permission_by_approval(taken), now.state or None)


async def _run_in_thread(agent: Agent, work: Any) -> Any:
    return await anyio.to_thread.run_sync(work, limiter=agent.threads)
