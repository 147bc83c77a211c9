"""Tell clients that the list of tools has changed: when the first repository appears, and when the last one goes.

A repository may also come or go by another process: whoever calls what is always there, or what is gone, brings it up.
Nobody hears the same change twice. Clients of the newer protocol listen to one bus; a session of the older one is told
when it calls something itself.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ToolsListChanged

MOST_SESSIONS = 2000
"""Sessions that are remembered; one that was forgotten is not told before it lists tools again."""

_SESSION_HEADER = "mcp-session-id"
_Context = ServerRequestContext[Any, Any]


class Announcer:
    """What clients were shown last: every tool, or only those that are there without a repository."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self._published: bool | None = None  # None: nobody has asked yet
        self._shown: OrderedDict[str, bool] = OrderedDict()

    def shown(self, context: _Context, everything: bool) -> None:
        """This session has the list now."""
        name = _session_of(context)
        self._shown[name] = everything
        self._shown.move_to_end(name)
        if len(self._shown) > MOST_SESSIONS:
            self._shown.popitem(last=False)

    async def tell(self, context: _Context, everything: bool) -> None:
        """Announce the change to whoever listens and to this session, where there is one since they were shown."""
        before, self._published = self._published, everything
        if before not in {None, everything}:
            await self.bus.publish(ToolsListChanged())
        if self._shown.get(_session_of(context), everything) is not everything:
            self.shown(context, everything)
            await context.session.send_tool_list_changed()


def _session_of(context: _Context) -> str:
    """Its id over HTTP; '' over stdio, where there is one, and for requests without a session, which the bus tells."""
    return context.request.headers.get(_SESSION_HEADER, "") if context.request is not None else ""
