"""The dashboard: what a person sees and decides in a browser. Each page reads the same use-cases as the commands."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qs

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from sandbox.agent.results import neutralise_values
from sandbox.daemon.browser_sessions import COOKIE, SESSION_S, LoopbackPort, Sessions, is_form_token, make_form_token
from sandbox.daemon.guards import RIGHTS
from sandbox.daemon.page_templates import HEADERS, render, serve_static
from sandbox.daemon.tool_calls import read_body
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import ApprovalScope, ApprovalState, TaskEvent, TaskStatus
from sandbox.workbench import Workbench

LINK_PATH, LOGIN_PATH, STATIC_PATH = "/dashboard/link", "/login", "/static/{name}"
_ENTRIES, _RUNS = 100, 50
_STATUS = {ErrorCode.NOT_FOUND: 404, ErrorCode.INVALID_INPUT: 400, ErrorCode.CONFLICT: 409}
_CHOICES = {
    "once": (True, ApprovalScope.ONCE),
    "task": (True, ApprovalScope.TASK),
    "deny": (False, ApprovalScope.ONCE),
}
_TAKEN = "Another program has the port of this daemon on another loopback address, and would get the link"

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Dashboard:
    """`person`: a controller for a person's decisions. `url`: of the pages; '' without a TCP listener. `port`: on the
    other addresses that a browser may try.
    """

    person: Workbench
    sessions: Sessions
    url: str
    port: LoopbackPort | None = None

    def routes(self) -> list[Route]:
        """All paths of the dashboard."""
        return [
            Route(LINK_PATH, self.make_link, methods=["POST"]),
            Route(LOGIN_PATH, self.log_in),
            Route(STATIC_PATH, lambda request: serve_static(request.path_params["name"])),
            Route("/", partial(self._show, "home", self._read_home)),
            Route("/tasks/{task_id}", partial(self._show, "task", self._read_task)),
            Route("/tasks/{task_id}/events", self.follow_task),
            Route("/runs/{run_id}", partial(self._show, "run", self._read_run)),
            Route("/approvals", partial(self._show, "approvals", self._read_approvals)),
            Route("/approvals/{approval_id}", self.decide, methods=["POST"]),
            Route("/host", partial(self._show, "host", self._read_host)),
        ]

    def make_link(self, request: Request) -> Response:
        """A one-time link, for our own user at the Unix socket only."""
        if request.scope[RIGHTS] != "user":
            return _refuse("Only `sandbox dashboard` can ask for a link.")
        if not self.url:
            return JSONResponse({"url": None})
        try:
            if self.port is not None:
                self.port.hold()
        except OSError:
            return JSONResponse({"url": None, "why": _TAKEN})
        return JSONResponse({"url": f"{self.url}{LOGIN_PATH}?link={self.sessions.make_link()}"})

    def log_in(self, request: Request) -> Response:
        """Use up a link, and set the cookie."""
        session = self.sessions.open_session(request.query_params.get("link", ""))
        if session is None:
            return _refuse("This link was used, or is older than a minute. Run `sandbox dashboard` again.")
        answer = RedirectResponse("/", 303, HEADERS)
        answer.set_cookie(COOKIE, session, max_age=int(SESSION_S), httponly=True, samesite="strict")
        return answer

    def _show(self, name: str, read: Callable[[Request], Values], request: Request) -> Response:
        session = self._find_person(request)
        if session is None:
            return _refuse("This is for persons. Run `sandbox dashboard`.")
        try:
            values = read(request)
        except SandboxError as error:
            return render("error", {"error": error, "page": name}, _STATUS.get(error.code, 503))
        return render(name, {**values, "page": name, "form_token": make_form_token(session)})

    def _find_person(self, request: Request) -> str | None:
        """The session of a person; that of the Unix socket has no cookie, and is our own user's."""
        if request.scope[RIGHTS] == "user":
            return "user"
        return self.sessions.find(request.headers.get("cookie", "")) if request.scope[RIGHTS] == "person" else None

    async def decide(self, request: Request) -> Response:
        """Answer a question, with the rules of `sandbox approvals`."""
        session = self._find_person(request)
        body = await read_body(request) or b""
        form = {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
        if session is None or "origin" not in request.headers or not is_form_token(session, form.get("form_token", "")):
            return _refuse("This form is not of a page of this session.")
        choice = _CHOICES.get(form.get("choice", ""))
        if choice is None:
            return _refuse("There is no such choice.")
        approval_id = request.path_params["approval_id"]
        return await anyio.to_thread.run_sync(partial(self._decide, approval_id, *choice))

    def _decide(self, approval_id: str, approved: bool, scope: ApprovalScope) -> Response:
        by = f"{self.person.caller.user} in the dashboard"
        try:
            self.person.answer_approval(approval_id, approved=approved, by=by, scope=scope)
        except SandboxError as error:
            return render("error", {"error": error, "page": "approvals"}, _STATUS.get(error.code, 503))
        return RedirectResponse("/approvals", 303, HEADERS)

    def follow_task(self, request: Request) -> Response:
        """The events of a task, with the output of its checks (SSE)."""
        if self._find_person(request) is None:
            return _refuse("This is for persons. Run `sandbox dashboard`.")
        try:
            task = self.person.task(request.path_params["task_id"])
        except SandboxError as error:
            return _refuse(error.brief, 404)
        return StreamingResponse(
            _stream_task(self.person, task.id), media_type="text/event-stream", headers={"cache-control": "no-store"}
        )

    def _read_home(self, _request: Request) -> Values:
        tasks = [task for task in self.person.tasks() if task.status is not TaskStatus.CLOSED]
        return {
            "repositories": self.person.repositories(),
            "tasks": sorted(tasks, key=lambda task: task.created_at, reverse=True),
            "questions": self._count_questions(),
            "events": self.person.events(20)[::-1],
        }

    def _read_task(self, request: Request) -> Values:
        task = self.person.task(request.path_params["task_id"])
        is_open = task.status is not TaskStatus.CLOSED
        return {
            "task": task,
            "diff": self.person.diff(task.id) if is_open else None,
            "checks": self.person.checks(task.id) if is_open else (),
            "runs": self.person.runs(task.id, _RUNS),
            "snapshots": self.person.snapshots(task.id) if is_open else (),
            "entries": self.person.log(task.id, limit=_ENTRIES)[::-1],
        }

    def _read_run(self, request: Request) -> Values:
        run_id = request.path_params["run_id"]
        run = self.person.past_run(run_id)
        try:
            usage = self.person.usage(run_id)
        except SandboxError:
            usage = None
        logs = [self.person.run_log(run_id, None, stream) for stream in ("stdout", "stderr")]
        return {"run": run, "usage": usage, "logs": logs}

    def _read_approvals(self, _request: Request) -> Values:
        found = self.person.approvals()
        return {
            "questions": [one for one in found if one.state is ApprovalState.PENDING],
            "in_force": [one for one in found if one.state is ApprovalState.APPROVED],
        }

    def _read_host(self, _request: Request) -> Values:
        return {"probes": self.person.doctor(), "home": self.person.home}

    def _count_questions(self) -> int:
        return sum(one.state is ApprovalState.PENDING for one in self.person.approvals())


async def _stream_task(workbench: Workbench, task_id: str) -> AsyncIterator[str]:
    events, ended = workbench.look_at_task(task_id), object()
    while (event := await anyio.to_thread.run_sync(next, events, ended, abandon_on_cancel=True)) is not ended:
        if not isinstance(event, TaskEvent):
            continue
        text = json.dumps(neutralise_values(event.model_dump(mode="json")), ensure_ascii=True)
        yield f"event: {event.kind.value}\ndata: {text}\n\n"


def _refuse(why: str, status: int = 403) -> Response:
    return Response(f"{why}\n", status, HEADERS, "text/plain")
