"""The paths of the daemon's HTTP server."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from sandbox.agent.agent import Agent
from sandbox.agent.transports.address import list_authorities
from sandbox.agent.transports.http import make_app
from sandbox.daemon.event_stream import EventHub, stream_events
from sandbox.daemon.guards import Network, OurUser
from sandbox.daemon.metrics import make_registry, show_metrics
from sandbox.daemon.tool_calls import PREFIX, make_api_routes
from sandbox.version import __version__


@dataclass(frozen=True)
class HttpOptions:
    """`host`, `port`: of the TCP listener; `token`: what its clients must send, '' without a listener."""

    host: str = "127.0.0.1"
    port: int = 0
    token: str = ""


@dataclass(frozen=True)
class Applications:
    """The same routes, for each listener with its own rules."""

    for_our_user: ASGIApp
    for_network: ASGIApp


def make_applications(agent: Agent, hub: EventHub, options: HttpOptions) -> Applications:
    """The routes of one home."""
    authorities = list_authorities(options.host, options.port)
    routes = [
        Route("/healthz", show_health),
        Route("/metrics", partial(show_metrics, make_registry(agent.workbench))),
        Route(f"{PREFIX}/events", partial(stream_events, hub)),
        *make_api_routes(agent),
    ]
    app = make_app(agent, options.host, options.port, routes)
    return Applications(OurUser(app, authorities[0]), Network(app, authorities, options.token, lambda _scope: False))


def show_health(_request: Request) -> Response:
    """For those who watch the service: it answers."""
    return JSONResponse({"status": "ok", "version": __version__})
