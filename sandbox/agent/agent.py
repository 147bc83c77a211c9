"""What one MCP server serves: a workbench, its approval mode, and the limits of its threads."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import anyio
from mcp.server.context import ServerRequestContext

from sandbox.agent.announcements import Announcer
from sandbox.agent.client_names import caller_of
from sandbox.agent.results import BUDGET_BYTES
from sandbox.agent.tools import Preset
from sandbox.models import Caller, Permission
from sandbox.workbench import Workbench

THREADS, WAITING_THREADS = 16, 64
"""Calls that run at once, beside them those that reach beyond this host, and those that wait for checks; more of a kind
wait.
"""

_Context = ServerRequestContext[Any, Any]


@dataclass(frozen=True)
class Agent:
    """What one server serves. `approvals`: `policy`, or `auto` for trusted automation. `every_tool`: no gating.

    `most_sessions`: of the older protocol over HTTP; beyond it the one that was idle for longest ends.
    `on_disconnect`: what becomes of a check whose call was given up by the client, or ended with it.
    `session`: names this server in the journal, for clients that have no session of their own.
    """

    workbench: Workbench
    home: Path
    approvals: Literal["policy", "auto"] = "policy"
    every_tool: bool = False
    budget_bytes: int = BUDGET_BYTES
    most_sessions: int = 500
    on_disconnect: Literal["keep", "stop"] = "keep"
    session: str = field(default_factory=lambda: uuid.uuid4().hex)
    announcer: Announcer = field(default_factory=Announcer)
    threads: anyio.CapacityLimiter = field(default_factory=partial(anyio.CapacityLimiter, THREADS))
    network_threads: anyio.CapacityLimiter = field(default_factory=partial(anyio.CapacityLimiter, THREADS))
    check_threads: anyio.CapacityLimiter = field(default_factory=partial(anyio.CapacityLimiter, WAITING_THREADS))

    def serving(self, context: _Context) -> Agent:
        """As this, for one call: what it does is written down with whose client asked."""
        return replace(self, workbench=self.workbench.acting(self._caller(context)))

    def allowed(self, context: _Context, how: Permission) -> Agent:
        """As `serving`, for a call that may go on."""
        return replace(self, workbench=self.workbench.acting(self._caller(context), how))

    def _caller(self, context: _Context) -> Caller:
        return caller_of(context, self.workbench.caller, self.session)

    def offers(self, preset: Preset) -> bool:
        """Whether the tools of a preset are there now. Reads one small file at most."""
        return preset is Preset.BOOTSTRAP or self.every_tool or bool(self.workbench.repositories())
