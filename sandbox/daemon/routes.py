"""The paths of the daemon's HTTP server."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import partial

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from sandbox.agent.agent import Agent
from sandbox.agent.transports.address import list_authorities
from sandbox.daemon.browser_sessions import LoopbackPort, Sessions
from sandbox.daemon.dashboard import Dashboard
from sandbox.daemon.event_stream import EventHub, stream_events
from sandbox.daemon.guards import Network, OurUser
from sandbox.daemon.late_mcp import LateMcp
from sandbox.daemon.metrics import make_registry, show_metrics
from sandbox.daemon.served_home import HttpOptions
from sandbox.daemon.tool_calls import PREFIX, make_api_routes
from sandbox.remotes import is_loopback
from sandbox.version import __version__
from sandbox.workbench import Workbench


@dataclass(frozen=True)
class Applications:
    """The same routes, for each listener with its own rules."""

    for_our_user: ASGIApp
    for_network: ASGIApp


def make_applications(agent: Agent, person: Workbench, hub: EventHub, options: HttpOptions) -> Applications:
    """The routes of one home. `person`: the controller of the dashboard."""
    authorities = list_authorities(options.host, options.port)
    sessions, pages = Sessions(), _name_pages(options)
    port = LoopbackPort(options.host, options.port) if is_loopback(options.host) else None
    dashboard = Dashboard(person, sessions, f"http://{pages}" if options.token else "", port)
    mcp = LateMcp(agent, options)
    routes = [
        Route("/mcp", mcp),
        Route("/healthz", show_health),
        Route("/metrics", partial(show_metrics, make_registry(agent.workbench))),
        Route(f"{PREFIX}/events", partial(stream_events, hub)),
        *make_api_routes(agent),
        *dashboard.routes(),
    ]
    app = Starlette(routes=routes, lifespan=mcp.lifespan)
    network = Network(app, [*authorities, pages], options.token, partial(_is_person, sessions, pages.encode()))
    return Applications(OurUser(app, authorities[0]), network)


def _name_pages(options: HttpOptions) -> str:
    """The host and port of the dashboard: on this machine a name that no other server has (see `Sessions`)."""
    if is_loopback(options.host):
        return f"{secrets.token_hex(8)}.localhost:{options.port}"
    return list_authorities(options.host, options.port)[0]


def _is_person(sessions: Sessions, pages: bytes, scope: Scope) -> bool:
    """Whether a request to the dashboard's own name has the cookie of an open session."""
    headers = dict(scope["headers"])
    return headers.get(b"host") == pages and sessions.find(headers.get(b"cookie", b"").decode("latin-1")) is not None


def show_health(_request: Request) -> Response:
    """For those who watch the service: it answers."""
    return JSONResponse({"status": "ok", "version": __version__})
