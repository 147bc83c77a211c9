"""Use-cases on approvals: ask, answer, use, revoke. Each decision is written to the journal of its task."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable, Container, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from sandbox import approvals
from sandbox.approvals import OF_CLUSTER, AgentCall, OutdatedApproval
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Actor, Approval, ApprovalScope, ApprovalState, Caller
from sandbox.policy.approvals import TOOL_NAMES
from sandbox.store import approvals as store
from sandbox.store.home import Home
from sandbox.store.records import find_repository, find_task, not_found_error
from sandbox.text import format_utc
from sandbox.workbench.approvals import question
from sandbox.workbench.checks.gate import TreeGate
from sandbox.workbench.controller.services import Services
from sandbox.workbench.delivery import push
from sandbox.workbench.delivery.diff_rule import find_reasons_to_ask
from sandbox.workbench.tasks.approved_state import describe_changes as describe_state_changes

LOCK = "approvals"
MOST_PER_SUBJECT = 20
"""Open questions about one task, else one repository, else one tool: an agent that loops does not block the others."""

MOST_PER_REPOSITORY = 100
"""Open questions about all tasks of one repository: an agent can create any number of tasks."""

MOST_PENDING = 500
"""Open questions in total."""


def build_call(services: Services, tool: str, arguments: Mapping[str, Any]) -> AgentCall:
    """The call that an approval is bound to. `arguments`: validated.

    Raises: `not_found` for a task or repository; the error for a URL that would be refused.
    """
    task_id, repo_id = arguments.get("task_id"), arguments.get("repo_id")
    if (url := arguments.get("url")) is not None:
        services.remotes.parse(url)  # a person is not asked about a URL that would be refused
    if task_id is not None:
        repo_id = find_task(services.home, task_id, allow_closed=True).repo_id
    elif repo_id is not None:
        find_repository(services.home, repo_id)
    target = question.find_target(services, tool, arguments, task_id)
    version = services.policies.approvals.version
    return AgentCall(tool, dict(arguments), version, task_id, repo_id, target.state, target.status)


def needs_no_question(services: Services, call: AgentCall) -> bool:
    """Whether a person need not be asked about a call: its packages are there, or the task to close is closed already.

    Raises: as `question.needs_no_question`.
    """
    return question.needs_no_question(services, call)


def is_allowed_by_diff(services: Services, call: AgentCall) -> bool:
    """Whether the policy decides about the call by what it sends, and finds no reason to ask a person."""
    rule = services.policies.approvals.find_diff_rule(call.tool)
    if rule is None or call.task_id is None:
        return False
    task = find_task(services.home, call.task_id)
    is_same = push.find_send_state(TreeGate(services, task), opens=call.tool == question.OPENING) == call.state
    return is_same and not find_reasons_to_ask(services, task, rule)


def take(services: Services, call: AgentCall) -> Approval | None:
    """The approval that covers the call, or None. An approval for one call is used up, by exactly one caller. It is
    never given back: a call that would be refused anyway is refused before it is taken.

    Raises: as `require_possible`.
    """
    question.require_possible(services, call.tool, call.arguments, call.task_id)
    home = services.home
    with home.locked(LOCK):
        now = datetime.now(UTC)
        found = _choose_covering(_list_live(home, now), call, now)
        if found is not None and found.scope is ApprovalScope.ONCE:
            return store.save_approval(home, found.model_copy(update={"state": ApprovalState.USED, "used_at": now}))
        return found


def find_covering(home: Home, call: AgentCall) -> Approval | None:
    """As `take`, without using the approval up, and without a look at whether the call would be refused."""
    return _choose_covering(store.list_unfiled(home), call, datetime.now(UTC))


def _choose_covering(live: Iterable[Approval], call: AgentCall, now: datetime) -> Approval | None:
    found = [a for a in live if approvals.covers(a, call, now)]
    found.sort(key=lambda a: a.scope is ApprovalScope.ONCE)  # prefer an approval that is not used up
    return found[0] if found else None


def find_used(home: Home, call: AgentCall, since: datetime) -> Approval | None:
    """The first approval of `list_used`; None without one."""
    return next(iter(list_used(home, call, since)), None)


def list_used(home: Home, call: AgentCall, since: datetime) -> tuple[Approval, ...]:
    """The approvals for exactly this call that were used up since then, and have not expired; oldest first."""
    digest, now = approvals.fingerprint(call), datetime.now(UTC)
    used = (a for a in store.list_recent(home) if a.state is ApprovalState.USED and a.fingerprint == digest)
    return tuple(a for a in used if a.used_at is not None and a.used_at >= since and now < a.expires_at)


def find_outdated(home: Home, call: AgentCall) -> OutdatedApproval | None:
    """The newest approval that a person gave for this call on another state, and what differs; or for exactly this
    call, and how it ended. None without one.
    """
    now, known = datetime.now(UTC), store.list_recent(home)
    given, ended = (find(known, call, now) for find in (approvals.find_outdated, approvals.find_ended))
    if ended is not None and (given is None or given.created_at < ended.created_at):
        return OutdatedApproval(ended.id, (_describe_end(ended),))
    return None if given is None else OutdatedApproval(given.id, _describe_changes(given, call))


def _describe_end(ended: Approval) -> str:
    if ended.used_at is not None:
        return f"it was used up by the same call at {format_utc(ended.used_at)}"
    return f"it expired unused at {format_utc(ended.expires_at)}"


def describe_changes(services: Services, approval_id: str) -> tuple[str, ...]:
    """What changed since a call was asked about, as lines: an approval of it does not cover the call of now. Empty for
    a request that is over, an approval of more than one call, and a task of a cluster, of which only its worker knows.

    Raises: `not_found`.
    """
    asked = find(services.home, approval_id)
    arguments = json.loads(asked.arguments)
    is_open = asked.state in {ApprovalState.PENDING, ApprovalState.APPROVED} and asked.scope is ApprovalScope.ONCE
    if not is_open or OF_CLUSTER in arguments:
        return ()
    try:
        return _describe_changes(asked, build_call(services, asked.tool, arguments))
    except SandboxError as error:
        return (f"the call would be refused: {error.brief}",)


def _describe_changes(asked: Approval, call: AgentCall) -> tuple[str, ...]:
    if asked.fingerprint == approvals.fingerprint(call):
        return ()
    policy = ("the approval policy",) if asked.policy != call.policy else ()
    return (*policy, *describe_state_changes(asked.acts_on, call.state))


def ask(services: Services, call: AgentCall) -> Approval:
    """Ask a person about a call. While a question is open, it is returned again.

    Raises: `approval_denied` when the call was denied and the denial has not expired; `quota_exceeded` for too many or
    too long questions; `conflict` when its state has changed by now; as `require_possible`.
    """
    question.require_possible(services, call.tool, call.arguments, call.task_id)
    lines = question.build_question(services, call)
    with services.home.locked(LOCK):
        now = datetime.now(UTC)
        known = _list_live(services.home, now)
        if (before := approvals.find_answered_request(known, call, now)) is not None:
            return _require_not_denied(before)
        _require_room(known, call)
        if days := services.settings.keep.approvals_days:
            store.delete_old(services.home, now - timedelta(days=days))
        asked = Approval(
            id=f"apr-{base64.b32encode(secrets.token_bytes(16)).decode().lower().rstrip('=')}",
            tool=call.tool,
            fingerprint=approvals.fingerprint(call),
            policy=call.policy,
            arguments=approvals.to_canonical_json(call.arguments),
            acts_on=call.state,
            task_id=call.task_id,
            repo_id=call.repo_id,
            question=lines,
            created_at=now,
            expires_at=now + timedelta(seconds=services.policies.approvals.expires_s),
            asked_by=services.caller,
        )
        return store.save_approval(services.home, asked)


def _list_live(home: Home, now: datetime) -> tuple[Approval, ...]:
    return store.list_live(home, partial(approvals.is_inactive, now=now))


def _require_room(known: Iterable[Approval], call: AgentCall) -> None:
    pending = [a for a in known if a.state is ApprovalState.PENDING]
    asker = approvals.quota_key(call)
    shares = (
        (asker, [a for a in pending if approvals.quota_key(a) == asker], MOST_PER_SUBJECT),
        (call.repo_id, [a for a in pending if call.repo_id and a.repo_id == call.repo_id], MOST_PER_REPOSITORY),
        ("all calls", pending, MOST_PENDING),
    )
    for about, waiting, most in shares:
        if len(waiting) >= most:
            raise SandboxError(
                ErrorCode.QUOTA_EXCEEDED,
                f"{len(waiting)} questions about {about} are already waiting for an answer",
                details=f"at most {MOST_PER_SUBJECT} a task, {MOST_PER_REPOSITORY} a repository, {MOST_PENDING} in all",
                hint="Answer them: `sandbox approvals list`, or `sandbox approvals deny --all [--tool TOOL]`.",
            )


def answer(
    services: Services, approval_id: str, *, approved: bool, by: str, scope: ApprovalScope = ApprovalScope.ONCE
) -> Approval:
    """Store a person's decision. A person may approve later what was denied; the client of an agent may not.

    Raises: `not_found`; `conflict` if it is decided or expired; `invalid_input`.
    """
    with services.home.locked(LOCK):
        now = datetime.now(UTC)
        approval = approvals.with_current_state(_find_stored(services.home, approval_id), now)
        may_change = (
            approved and services.surface.actor is not Actor.AGENT and approvals.is_denial_in_force(approval, now)
        )
        if approval.state is not ApprovalState.PENDING and not may_change:
            raise _decided_error(approval, now)
        _require_scope(approval, scope)
        always = services.policies.approvals.always_expires_s
        until = approval.expires_at if scope is ApprovalScope.ONCE else now + timedelta(seconds=always)
        state = ApprovalState.APPROVED if approved else ApprovalState.DENIED
        decided = {
            "state": state,
            "scope": scope,
            "expires_at": until,
            **_decision(services.caller, services.surface.actor, now, by),
        }
        return store.save_approval(services.home, approval.model_copy(update=decided))


def _decided_error(approval: Approval, now: datetime) -> SandboxError:
    """A request that cannot be answered so. The hint says what a person can do about it."""
    hint = "The agent asks again if needed; `sandbox approvals list` shows open questions."
    if approval.state is ApprovalState.APPROVED:
        hint = f"`sandbox approvals revoke {approval.id}` takes it back."
    elif approvals.is_denial_in_force(approval, now):
        hint = f"It holds until {format_utc(approval.expires_at)}. {_describe_way_back(approval)}"
    return SandboxError(ErrorCode.CONFLICT, f"{approval.id} is {approval.state.value} already", hint=hint)


def _describe_way_back(denied: Approval) -> str:
    return f"A person allows the call after all with `sandbox approvals approve {denied.id}`."


def revoke(services: Services, approval_id: str, by: str) -> Approval:
    """Revoke an approval or an open question. Raises: `not_found`; `conflict` if it is already over."""
    with services.home.locked(LOCK):
        now = datetime.now(UTC)
        approval = approvals.with_current_state(_find_stored(services.home, approval_id), now)
        if approval.state not in {ApprovalState.PENDING, ApprovalState.APPROVED}:
            raise SandboxError(
                ErrorCode.CONFLICT,
                f"{approval_id} is {approval.state.value} already",
                hint="`sandbox approvals list` shows approvals that can be revoked.",
            )
        update = {"state": ApprovalState.REVOKED, **_decision(services.caller, services.surface.actor, now, by)}
        return store.save_approval(services.home, approval.model_copy(update=update))


def find_expired(home: Home) -> tuple[Approval, ...]:
    """Questions that were not answered in time, and approvals that ran out unused. Their records do not say so yet."""
    now = datetime.now(UTC)
    return tuple(a for a in store.list_unfiled(home) if a.state is not _state_at(a, now))


def expire(home: Home, approval_id: str) -> Approval:
    """Write into the record that its time is over. Raises: `not_found`; `conflict` if that is not, or no longer, so."""
    with home.locked(LOCK):
        approval = _find_stored(home, approval_id)
        state = _state_at(approval, datetime.now(UTC))
        if approval.state is state:
            raise SandboxError(ErrorCode.CONFLICT, f"{approval_id} is {approval.state.value} already")
        return store.save_approval(home, approval.model_copy(update={"state": state}))


def _state_at(approval: Approval, now: datetime) -> ApprovalState:
    return approvals.with_current_state(approval, now).state


def _decision(caller: Caller, actor: Actor, now: datetime, by: str) -> dict[str, object]:
    surface = "elicitation" if actor is Actor.AGENT else actor.value
    return {"decided_at": now, "decided_by": by, "decider": caller, "surface": surface}


def list_all(home: Home, *, everything: bool = False) -> tuple[Approval, ...]:
    """Open questions and approvals in force; with `everything` also those that are over."""
    now, alive = datetime.now(UTC), {ApprovalState.PENDING, ApprovalState.APPROVED}
    if everything:
        return tuple(approvals.with_current_state(a, now) for a in store.list_approvals(home))
    found = (approvals.with_current_state(a, now) for a in store.list_unfiled(home))
    return tuple(a for a in found if a.state in alive)


def end_all(
    home: Home, states: Container[ApprovalState], tool: str | None, end: Callable[[str], Approval]
) -> tuple[Approval, ...]:
    """Call `end` for each approval in one of the states, of one tool if given. Skips those that ended in between.

    Raises: `not_found` for a tool that does not exist.
    """
    alive = [a for a in list_all(home) if a.state in states]
    if tool is not None and tool not in {*TOOL_NAMES, *(a.tool for a in alive)}:
        raise not_found_error("tool", tool, TOOL_NAMES, "No request was changed. `sandbox approvals list` shows them.")
    found = [a for a in alive if tool in {None, a.tool}]
    ended = []
    for approval in found:
        try:
            ended.append(end(approval.id))
        except SandboxError as error:
            if error.code not in {ErrorCode.CONFLICT, ErrorCode.NOT_FOUND}:
                raise
    return tuple(ended)


def find(home: Home, approval_id: str) -> Approval:
    """One approval as it is now. Raises: `not_found`."""
    return approvals.with_current_state(_find_stored(home, approval_id), datetime.now(UTC))


def _require_not_denied(approval: Approval) -> Approval:
    if approval.state is ApprovalState.DENIED:
        raise SandboxError(
            ErrorCode.APPROVAL_DENIED,
            f"{approval.tool} was not approved",
            details=f"{approval.id}: {approval.decided_by} denied exactly this call",
            hint=f"Continue without this call, or change what the person objects to. {_describe_way_back(approval)}",
        )
    return approval


def _find_stored(home: Home, approval_id: str) -> Approval:
    approval = store.find_approval(home, approval_id)
    if approval is None:  # suggest no similar ids: knowing an id allows answering
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            "There is no such approval",
            details=f"in the home {home.root}",
            hint="`sandbox approvals list` shows open questions. For an agent of another home give that one: --home.",
        )
    return approval


def _require_scope(approval: Approval, scope: ApprovalScope) -> None:
    missing = {ApprovalScope.TASK: approval.task_id is None, ApprovalScope.REPOSITORY: approval.repo_id is None}
    if missing.get(scope, False):
        raise SandboxError(ErrorCode.INVALID_INPUT, f"This call has no {scope.value}, so it can only be approved once")
    if scope is not ApprovalScope.ONCE and approvals.is_once_only(approval):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"A person decides about each call of {approval.tool} like this one, so it can only be approved once",
            hint=f"`sandbox approvals approve {approval.id}`, without --for, approves exactly this call.",
        )
