"""Forms of the dashboard: who may send them, and what each button of a task does.

A button is a use-case, as a command is: the same checks, locks, journal and errors. A request that changes something
needs the session, our origin, and the token that the pages of this session carry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import parse_qs

from starlette.requests import Request

from sandbox.daemon.browser_sessions import is_form_token
from sandbox.daemon.tool_calls import read_body
from sandbox.models import ApprovalScope
from sandbox.workbench import Workbench

Form = Mapping[str, str]

_FORM_BYTES, _FORM_FIELDS = 64 * 1024, 20
"""Ours have at most four fields."""


async def read_form(request: Request, session: str | None) -> Form | None:
    """The fields of a form; None if it is not of a page of this session. Without a session its body is not read.

    The fields of 16 MiB, as an agent with the token may send them, take 5 s of the thread that serves all clients.
    """
    if session is None or "origin" not in request.headers:
        return None
    form = _parse(await read_body(request, _FORM_BYTES) or b"")
    return form if is_form_token(session, form.get("form_token", "")) else None


def _parse(body: bytes) -> Form:
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=_FORM_FIELDS)
    except ValueError:  # more fields
        return {}
    return {name: values[0] for name, values in fields.items()}


def _snapshot(person: Workbench, task_id: str, form: Form) -> str:
    person.snapshot(task_id, form.get("label", ""))
    return f"/tasks/{task_id}"


def _restore(person: Workbench, task_id: str, form: Form) -> str:
    person.restore(task_id, form.get("state", ""))
    return f"/tasks/{task_id}"


def _fork(person: Workbench, task_id: str, form: Form) -> str:
    made = person.fork_task(task_id, form.get("state"), form.get("prompt"))
    return f"/tasks/{made.id}"


def _stop(person: Workbench, task_id: str, _form: Form) -> str:
    person.stop_checks(task_id)
    return f"/tasks/{task_id}"


TASK_ACTIONS: Mapping[str, Callable[[Workbench, str, Form], str]] = {
    "snapshot": _snapshot,
    "restore": _restore,
    "fork": _fork,
    "stop": _stop,
}
"""What the buttons of a task do. Each returns the path of the page to show next."""


def _answer(person: Workbench, approval_id: str, by: str, *, approved: bool, scope: ApprovalScope) -> None:
    person.answer_approval(approval_id, approved=approved, by=by, scope=scope)


def _revoke(person: Workbench, approval_id: str, by: str) -> None:
    person.revoke_approval(approval_id, by=by)


CHOICES: Mapping[str, Callable[[Workbench, str, str], None]] = {
    "once": partial(_answer, approved=True, scope=ApprovalScope.ONCE),
    "task": partial(_answer, approved=True, scope=ApprovalScope.TASK),
    "repository": partial(_answer, approved=True, scope=ApprovalScope.REPOSITORY),
    "deny": partial(_answer, approved=False, scope=ApprovalScope.ONCE),
    "revoke": _revoke,
}
"""The answers to a question, as `sandbox approvals` has them."""
