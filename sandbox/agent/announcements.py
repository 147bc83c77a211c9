"""Notify clients when the list of tools changes: when the first repository is added and when the last one is removed.

Another process may also add or remove a repository. The change is then noticed on the next call of a tool that is
always listed, or of one that is no longer listed. No client is notified twice of the same change. Clients of the newer
protocol subscribe to one bus; a session of the older protocol is notified when it makes a call itself.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from sandbox.agent.client_names import find_session
from sandbox.lazy_module import LazyModule

if TYPE_CHECKING:
    from mcp.server import subscriptions
    from mcp.server.context import ServerRequestContext

    _Context: TypeAlias = ServerRequestContext[Any, Any]
else:  # the daemon has an announcer before an agent speaks MCP
    subscriptions = LazyModule("mcp.server.subscriptions")

MAX_SESSIONS = 2000
"""Sessions that are remembered; a forgotten one is not notified until it lists the tools again."""


class Announcer:
    """Remembers which list each client saw last: every tool, or only those that need no repository."""

    def __init__(self) -> None:
        self._published: bool | None = None  # None: not asked for yet
        self._shown: OrderedDict[str, bool] = OrderedDict()

    @cached_property
    def bus(self) -> subscriptions.InMemorySubscriptionBus:
        """Where clients of the newer protocol subscribe."""
        return subscriptions.InMemorySubscriptionBus()

    def remember_list(self, context: _Context, everything: bool) -> None:
        """Remember which list this session has."""
        name = find_session(context)
        self._shown[name] = everything
        self._shown.move_to_end(name)
        if len(self._shown) > MAX_SESSIONS:
            self._shown.popitem(last=False)

    async def notify_change(self, context: _Context, everything: bool) -> None:
        """Notify the subscribers and this session if the list has changed since they saw it."""
        before, self._published = self._published, everything
        if before not in {None, everything}:
            await self.bus.publish(subscriptions.ToolsListChanged())
        if self._shown.get(find_session(context), everything) is not everything:
            self.remember_list(context, everything)
            await context.session.send_tool_list_changed()
