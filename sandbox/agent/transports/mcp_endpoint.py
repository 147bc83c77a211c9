"""The MCP endpoint of HTTP, as an application."""

from __future__ import annotations

from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette

from sandbox.agent.agent import MAX_BODY_BYTES, Agent
from sandbox.agent.server import make_server
from sandbox.agent.transports.address import list_authorities
from sandbox.agent.transports.sessions import SPARE, LimitSessions


def make_app(agent: Agent, host: str, port: int) -> Starlette:
    """The endpoint, at `/mcp`, for requests that name this host and port."""
    authorities = list_authorities(host, port)
    security = TransportSecuritySettings(
        allowed_hosts=authorities, allowed_origins=[f"http://{authority}" for authority in authorities]
    )
    app = make_server(agent).streamable_http_app(
        transport_security=security,
        host=host,
        max_request_body_size=MAX_BODY_BYTES,
        max_sessions=agent.max_sessions + SPARE,
    )
    app.add_middleware(LimitSessions, limit=agent.max_sessions)
    return app
