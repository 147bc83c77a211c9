"""The paths of the daemon's HTTP server."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from sandbox.agent.agent import Agent
from sandbox.agent.transports.address import list_authorities
from sandbox.agent.transports.body_room import BodyRoom
from sandbox.daemon.browser_sessions import LoopbackPort, Sessions
from sandbox.daemon.dashboard import Dashboard, show_error
from sandbox.daemon.event_stream import EventHub, stream_events
from sandbox.daemon.guards import METRICS, RIGHTS, Network, OurUser
from sandbox.daemon.late_mcp import LateMcp
from sandbox.daemon.metrics import make_endpoint
from sandbox.daemon.served_home import Controllers, HttpOptions
from sandbox.daemon.tool_calls import PREFIX, make_api_routes, refuse_without
from sandbox.errors import ErrorCode, SandboxError
from sandbox.remotes import is_loopback
from sandbox.version import __version__


@dataclass(frozen=True)
class Applications:
    """The same routes, for each listener with its own rules. `guard_network`: makes the application that TCP may reach
    of `for_network`, which trusts every request.
    """

    for_our_user: ASGIApp
    for_network: ASGIApp
    guard_network: Callable[[ASGIApp], ASGIApp]


def make_applications(controllers: Controllers, hub: EventHub, options: HttpOptions) -> Applications:
    """The routes of one home."""
    agent, person = controllers.make_agent(), controllers.person
    authorities = list_authorities(options.host, options.port)
    sessions, pages = Sessions(), _name_pages(options)
    port = LoopbackPort(options.host, options.port) if is_loopback(options.host) else None
    dashboard = Dashboard(person, sessions, f"http://{pages}" if options.token else "", port)
    mcp = LateMcp(agent, options, controllers.upgrade)
    routes = [
        Route("/mcp", mcp),
        Route("/healthz", show_health),
        Route(METRICS, make_endpoint(agent.workbench)),
        Route(f"{PREFIX}/events", partial(show_events, agent, hub)),
        *make_api_routes(agent),
        *dashboard.routes(),
    ]
    app = Starlette(routes=routes, lifespan=mcp.lifespan, exception_handlers={HTTPException: show_http_error})
    is_person = partial(_is_person, sessions, pages.encode())

    def guard_network(guarded: ASGIApp) -> ASGIApp:
        return Network(guarded, [*authorities, pages], options.token, is_person, options.metrics_token)

    return Applications(OurUser(app, authorities[0]), BodyRoom(app), guard_network)


def _name_pages(options: HttpOptions) -> str:
    """The host and port of the dashboard: on this machine a name that no other server has (see `Sessions`)."""
    if is_loopback(options.host):
        return f"{secrets.token_hex(8)}.localhost:{options.port}"
    return list_authorities(options.host, options.port)[0]


def _is_person(sessions: Sessions, pages: bytes, scope: Scope) -> bool:
    """Whether a request to the dashboard's own name has the cookie of an open session."""
    headers = dict(scope["headers"])
    return headers.get(b"host") == pages and sessions.find(headers.get(b"cookie", b"").decode("latin-1")) is not None


def show_http_error(request: Request, error: Exception) -> Response:
    """For a path that is not served, or not by this method: a page for a person, else a line of text."""
    status, headers = getattr(error, "status_code", 500), getattr(error, "headers", None)
    if status == HTTPStatus.NOT_FOUND:
        brief, hint = f"There is no {request.url.path} here", "docs/serve.md lists the paths of the daemon."
    elif status == HTTPStatus.METHOD_NOT_ALLOWED:
        brief, hint = f"{request.url.path} cannot be asked by {request.method}", "docs/serve.md says how."
    else:
        detail = str(getattr(error, "detail", "")).rstrip(".") or HTTPStatus(status).phrase
        brief, hint = detail, "docs/serve.md describes the paths of the daemon."
    if request.scope.get(RIGHTS) == "person":
        return show_error(SandboxError(ErrorCode.NOT_FOUND, brief, hint=hint), "", status)
    return PlainTextResponse(f"{brief}.\n{hint}\n", status, headers)


def show_events(agent: Agent, hub: EventHub, request: Request) -> Response:
    """As `stream_events`. They name all tasks, and show their journals: an agent needs what it needs for these."""
    is_person = request.scope.get(RIGHTS) in {"user", "person"}
    refusal = None if is_person else refuse_without(agent, "space_repo_list_tasks", "space_repo_status")
    return refusal or stream_events(hub, request)


def show_health(_request: Request) -> Response:
    """For those who watch the service: it answers."""
    return JSONResponse({"status": "ok", "version": __version__})
