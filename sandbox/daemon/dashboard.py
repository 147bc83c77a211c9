"""The dashboard: what a person sees and decides in a browser. Each page reads the same use-cases as the commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from sandbox.daemon.api_page import read_api
from sandbox.daemon.browser_sessions import COOKIE, SESSION_S, LoopbackPort, Sessions, make_form_token
from sandbox.daemon.forms import CHOICES, TASK_ACTIONS, read_form
from sandbox.daemon.guards import RIGHTS
from sandbox.daemon.home_pages import read_approvals, read_home, read_host, read_storage
from sandbox.daemon.kept_answers import KeptAnswers
from sandbox.daemon.page_templates import HEADERS, render, serve_static
from sandbox.daemon.task_pages import read_pull_request, read_run, read_task
from sandbox.daemon.task_stream import find_place, stream_task
from sandbox.daemon.tcp_peers import is_other_user
from sandbox.errors import ErrorCode, SandboxError
from sandbox.workbench import Workbench

LINK_PATH, LOGIN_PATH, STATIC_PATH = "/dashboard/link", "/login", "/static/{name}"
_STATUS = {ErrorCode.NOT_FOUND: 404, ErrorCode.INVALID_INPUT: 400, ErrorCode.CONFLICT: 409}
_TAKEN = "Another program has the port of this daemon on another loopback address, and would get the link"

_OTHER_USER = """This link is for the user of the daemon, and this browser runs as another user.
The link was not used: open it with a browser of the daemon's user, or on another machine through
`ssh -L PORT:127.0.0.1:PORT`, with the daemon's port, as the daemon's user.
For a browser of another user of this machine, the daemon must run as that user, or listen at an address that is not
loopback: `sandbox serve --http ADDRESS:PORT --token-file FILE`. There, the link alone is enough."""

_FOREIGN_FORM = "This form is not of a page of this session."

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
    kept: KeptAnswers = field(default_factory=KeptAnswers)

    def routes(self) -> list[Route]:
        """All paths of the dashboard."""
        return [
            Route(LINK_PATH, self.make_link, methods=["POST"]),
            Route(LOGIN_PATH, self.log_in),
            Route(STATIC_PATH, lambda request: serve_static(request.path_params["name"])),
            Route("/", partial(self._show, "home", read_home)),
            Route("/tasks/{task_id}", partial(self._show, "task", read_task)),
            Route("/tasks/{task_id}/events", self.follow_task),
            Route("/tasks/{task_id}/pull-request", partial(self._show, "pull_request", read_pull_request)),
            Route("/tasks/{task_id}/{action}", self.act_on_task, methods=["POST"]),
            Route("/runs/{run_id}", partial(self._show, "run", read_run)),
            Route("/approvals", partial(self._show, "approvals", read_approvals)),
            Route("/approvals/{approval_id}", self.decide, methods=["POST"]),
            Route("/host", partial(self._show, "host", partial(read_host, kept=self.kept))),
            Route("/host/again", partial(self._ask_again, "host"), methods=["POST"]),
            Route("/storage", partial(self._show, "storage", partial(read_storage, kept=self.kept))),
            Route("/storage/again", partial(self._ask_again, "storage"), methods=["POST"]),
            Route("/api", partial(self._show, "api", read_api)),
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
        if self.port is not None and _is_stranger(request):
            return _refuse(_OTHER_USER)
        session = self.sessions.open_session(request.query_params.get("link", ""))
        if session is None:
            return _refuse("This link was used, or is older than a minute. Run `sandbox dashboard` again.")
        answer = RedirectResponse("/", 303, HEADERS)
        answer.set_cookie(COOKIE, session, max_age=int(SESSION_S), httponly=True, samesite="strict")
        return answer

    def _show(self, name: str, read: Callable[..., Values], request: Request) -> Response:
        session = self._find_person(request)
        if session is None:
            return _refuse("This is for persons. Run `sandbox dashboard`.")
        try:
            values = read(self.person, **request.path_params)
        except SandboxError as error:
            return show_error(error, name)
        served = {"page": name, "form_token": make_form_token(session), "served_home": self.person.home}
        return render(name, {**values, **served})

    def _find_person(self, request: Request) -> str | None:
        """The session of a person; that of the Unix socket has no cookie, and is our own user's."""
        if request.scope[RIGHTS] == "user":
            return "user"
        return self.sessions.find(request.headers.get("cookie", "")) if request.scope[RIGHTS] == "person" else None

    async def decide(self, request: Request) -> Response:
        """Answer a question, with the rules of `sandbox approvals`."""
        form = await read_form(request, self._find_person(request))
        if form is None:
            return _refuse(_FOREIGN_FORM)
        choose = CHOICES.get(form.get("choice", ""))
        if choose is None:
            return _refuse("There is no such choice.")
        by = f"{self.person.caller.user} in the dashboard"

        def act() -> str:
            choose(self.person, request.path_params["approval_id"], by)
            return "/approvals"

        return await anyio.to_thread.run_sync(_act, act, "approvals")

    async def act_on_task(self, request: Request) -> Response:
        """Do what a button of a task's page says."""
        form = await read_form(request, self._find_person(request))
        if form is None:
            return _refuse(_FOREIGN_FORM)
        action = TASK_ACTIONS.get(request.path_params["action"])
        if action is None:
            return _refuse("There is no such action.", 404)
        return await anyio.to_thread.run_sync(
            _act, partial(action, self.person, request.path_params["task_id"], form), "home"
        )

    async def _ask_again(self, page: str, request: Request) -> Response:
        """Go to a page that asks anew for what takes seconds to find out."""
        if await read_form(request, self._find_person(request)) is None:
            return _refuse(_FOREIGN_FORM)
        answer = self.kept.probes if page == "host" else self.kept.storage
        answer.forget()
        return RedirectResponse(f"/{page}", 303, HEADERS)

    def follow_task(self, request: Request) -> Response:
        """The events of a task, with the output of its checks (SSE)."""
        if self._find_person(request) is None:
            return _refuse("This is for persons. Run `sandbox dashboard`.")
        try:
            task = self.person.task(request.path_params["task_id"])
        except SandboxError as error:
            return _refuse(error.brief, 404)
        events = stream_task(self.person, task.id, find_place(request))
        return StreamingResponse(events, 200, HEADERS, "text/event-stream")


def _is_stranger(request: Request) -> bool:
    """Whether another user of this host sends this request: the arguments of a browser, with the link, are public."""
    client, server = request.client, request.scope.get("server")
    return client is not None and server is not None and is_other_user((client.host, client.port), tuple(server))


def _act(act: Callable[[], str], page: str) -> Response:
    """In a thread: do it and go on to the page that it names, or show the error."""
    try:
        return RedirectResponse(act(), 303, HEADERS)
    except SandboxError as error:
        return show_error(error, page)


def show_error(error: SandboxError, page: str, status: int | None = None) -> Response:
    """The page of an error; `status`: None for that of its code."""
    return render("error", {"error": error, "page": page}, status or _STATUS.get(error.code, 503))


def _refuse(why: str, status: int = 403) -> Response:
    return Response(f"{why}\n", status, HEADERS, "text/plain")
