"""Serve one client over standard input and output."""

from __future__ import annotations

import anyio
from mcp.server.stdio import stdio_server

from sandbox.agent.server import Agent, make_server


def serve_stdio(agent: Agent) -> None:
    """Until the client closes its end. Checks that run then are stopped."""
    anyio.run(_serve, agent)


async def _serve(agent: Agent) -> None:
    server = make_server(agent)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
