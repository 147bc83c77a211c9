"""The settings and services of one MCP server: a workbench, its approval mode, and its thread limits."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import anyio

from sandbox.agent.announcements import Announcer
from sandbox.agent.client_names import caller_of
from sandbox.agent.shown_results import BUDGET_BYTES
from sandbox.agent.tools import Preset
from sandbox.errors import SandboxError
from sandbox.models import Permission
from sandbox.workbench import Workbench

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    _Context: TypeAlias = ServerRequestContext[Any, Any]

THREADS, WAITING_THREADS = 16, 64
"""Threads for local calls, the same number for network calls, and threads for calls that wait for checks. Calls beyond
these numbers wait.
"""

MAX_BODY_BYTES = 16 * 1024**2
"""Of one request over HTTP, with MCP and as JSON."""


@dataclass(frozen=True)
class Agent:
    """What one server uses. `approvals`: `policy`, or `auto` for trusted automation.

    `presets`: the groups of tools that this server has, beside those that are always there; None: all of them, and
    until there is a repository only the latter are listed.
    `max_sessions`: for the older protocol over HTTP; above it the session that was idle longest is ended.
    `on_disconnect`: what to do with a check when the client cancels its call or disconnects.
    `session`: identifies this server in the journal, for clients without a session id.
    """

    workbench: Workbench
    home: Path
    approvals: Literal["policy", "auto"] = "policy"
    presets: frozenset[Preset] | None = None
    budget_bytes: int = BUDGET_BYTES
    max_sessions: int = 500
    on_disconnect: Literal["keep", "stop"] = "keep"
    session: str = field(default_factory=lambda: uuid.uuid4().hex)
    announcer: Announcer = field(default_factory=Announcer)
    threads: anyio.CapacityLimiter = field(default_factory=partial(anyio.CapacityLimiter, THREADS))
    network_threads: anyio.CapacityLimiter = field(default_factory=partial(anyio.CapacityLimiter, THREADS))
    check_threads: anyio.CapacityLimiter = field(default_factory=partial(anyio.CapacityLimiter, WAITING_THREADS))

    def for_call(self, context: _Context) -> Agent:
        """A copy for one call: its journal entries name the client that made the call."""
        return replace(self, workbench=self.workbench.acting(caller_of(context, self.workbench.caller, self.session)))

    def with_permission(self, permission: Permission) -> Agent:
        """Of a copy for one call, one for a permitted call: its journal entries also say why it was permitted."""
        return replace(self, workbench=self.workbench.acting(self.workbench.caller, permission))

    @property
    def reading_threads(self) -> anyio.CapacityLimiter:
        """For reads about a task or repository. In a home with a cluster they may ask a worker, which may be silent as
        long as any remote: local calls do not wait for them.
        """
        return self.network_threads if self.workbench.has_cluster else self.threads

    def offers(self, preset: Preset) -> bool:
        """Whether the tools of a preset are listed now, and can be called. Reads at most one small file; where that is
        damaged, a call says so.
        """
        if preset is Preset.BOOTSTRAP:
            return True
        if self.presets is not None:
            return preset in self.presets
        try:
            return bool(self.workbench.repositories())
        except SandboxError:
            return True

    def lists_all(self) -> bool:
        """Whether this server lists all tools that it will ever list."""
        return self.presets is not None or self.offers(Preset.DISCOVER)
