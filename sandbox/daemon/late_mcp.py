"""The MCP endpoint of the daemon, made at its first request.

The protocol's library and the schemas of all tools are 20 MB, and most agents speak over standard streams, to a process
of their own (`sandbox mcp`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup, TaskStatus
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from sandbox.agent.agent import Agent
from sandbox.daemon.served_home import HttpOptions
from sandbox.daemon.upgrade import Upgrade

_REFUSAL = PlainTextResponse(
    "This server is being replaced by the newer program that was installed. Try again.\n", 503, {"retry-after": "1"}
)


class LateMcp:
    """An application, and the lifespan of the one that it is part of."""

    _group: TaskGroup  # of the lifespan

    def __init__(self, agent: Agent, options: HttpOptions, upgrade: Upgrade) -> None:
        self._agent, self._options, self._upgrade = agent, options, upgrade
        self._app: Starlette | None = None
        self._starting = anyio.Lock()
        self._ended = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        app = self._app or await self._start_once()
        await (app or _REFUSAL)(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        """Within it, requests are served. Its end ends all sessions."""
        async with anyio.create_task_group() as self._group:
            yield
            self._ended.set()

    async def _start_once(self) -> Starlette | None:
        """None after an upgrade: the newer program has it, and the daemon starts that."""
        async with self._starting:
            if self._app is None and not await anyio.to_thread.run_sync(self._upgrade.is_awaited):
                app = await anyio.to_thread.run_sync(self._make)
                await self._group.start(self._keep, app)
                self._app = app
            return self._app

    def _make(self) -> Starlette:
        """In a thread: the import takes most of a second."""
        from sandbox.agent.transports.mcp_endpoint import make_app  # noqa: PLC0415 - see the module's docstring

        return make_app(self._agent, self._options.host, self._options.port)

    async def _keep(self, app: Starlette, *, task_status: TaskStatus[None]) -> None:
        """Keep its sessions, in the one task that may."""
        async with app.router.lifespan_context(app):
            task_status.started()
            await self._ended.wait()
