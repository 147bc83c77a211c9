"""Permission for requests of the protocol that show or do the same as a tool: resources, prompts, tasks.

Such a request cannot ask a person. It needs what its tool needs: to be offered by this server, and allowed by the
policy without a question.

The permission is checked when a request or stream begins, and holds until it ends: a controller reads its approval
policy once (`Policies.approvals`). A changed policy takes effect with the next controller, for which `sandbox mcp` is
started again and a daemon reloaded. Both end the streams of the controller before it. If a controller ever reads its
policy again, each stream has to be checked again before its next event, those of `refuse_without` (daemon) as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mcp_types as types
from mcp.shared.exceptions import MCPError

from sandbox.agent.permission import permit_without_asking
from sandbox.agent.tools import TOOLS
from sandbox.errors import ErrorCode, SandboxError
from sandbox.text import one_line

if TYPE_CHECKING:
    from typing import Any, TypeAlias

    from mcp.server.context import ServerRequestContext

    from sandbox.agent.agent import Agent

    _Context: TypeAlias = ServerRequestContext[Any, Any]


def permit_request(agent: Agent, context: _Context, name: str, what: str) -> Agent:
    """The agent for a request that stands for the tool `name`. `what`: a noun for what a server without that tool does
    not have. Raises: `MCPError`.
    """
    try:
        if not agent.offers(TOOLS[name].preset):
            raise SandboxError(ErrorCode.NOT_FOUND, f"There is no such {what}")
        return agent.for_call(context).with_permission(permit_without_asking(agent, TOOLS[name]))
    except SandboxError as error:
        raise MCPError(types.INVALID_REQUEST, one_line(f"{error.brief}. {error.hint}".rstrip())) from error


def is_permitted(agent: Agent, name: str) -> bool:
    """Whether `permit_request` would permit a request."""
    try:
        return agent.offers(TOOLS[name].preset) and bool(permit_without_asking(agent, TOOLS[name]))
    except SandboxError:
        return False
