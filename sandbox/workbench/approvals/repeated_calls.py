"""A call that a person approved, that was carried out, and that comes again because its answer was lost.

Theory. An approval for one call is used up by it, so the same call would be a question again. Its answer is found
instead, from what the remote or the forge says now: such a look has no effect, so the used approval allows no second
effect. That the branch or the pull request is there does not say that the call ended well, or that it made them: the
journal does, in an entry under that approval. Without it, or if what the call did is no longer so, a person is asked
(docs/adr/0194).
"""

from __future__ import annotations

from datetime import UTC, datetime

from sandbox.approvals import AgentCall, DoneCall
from sandbox.models import Approval, PullRequest, PushResult, Task
from sandbox.store import journal
from sandbox.store.records import find_task
from sandbox.text import format_utc
from sandbox.workbench.approvals import question, requests
from sandbox.workbench.controller.services import Services
from sandbox.workbench.delivery import pull_requests, push

_EVER = datetime.min.replace(tzinfo=UTC)


def find_done_call(services: Services, call: AgentCall) -> DoneCall | None:
    """None for a call that did not end well under an approval that has not expired, and if what it did is not so now.

    Raises: as `push.find_pushed`, `pull_requests.find_open_request`.
    """
    if call.tool not in question.SENDING or call.task_id is None:
        return None
    used = _find_carried_out(services, call, call.task_id)
    if used is None or used.used_at is None:
        return None
    result = _find_result(services, call, find_task(services.home, call.task_id))
    if result is None:
        return None
    note = f"This call was carried out at {format_utc(used.used_at)} under {used.id}, and not again"
    return DoneCall(used, result.model_copy(update={"note": note}))


def _find_carried_out(services: Services, call: AgentCall, task_id: str) -> Approval | None:
    """The approval for this call that was used up last by one that ended well."""
    used = {approval.id: approval for approval in requests.list_used(services.home, call, _EVER)}
    entries = journal.read_recent_entries(services.home, task_id) if used else ()
    done = (entry.allowed.approval_id for entry in entries if entry.allowed is not None and entry.result == "ok")
    return next((used[approval_id] for approval_id in done if approval_id in used), None)


def _find_result(services: Services, call: AgentCall, task: Task) -> PushResult | PullRequest | None:
    if call.tool == question.PUSHING:
        return push.find_pushed(services, task)
    return pull_requests.find_open_request(services, task, draft=bool(call.arguments.get("draft", True)))
