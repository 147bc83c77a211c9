"""Results and errors of tools, as MCP carries them: `shown_results` has what is shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mcp_types as types
from pydantic import BaseModel

from sandbox.agent.shown_results import BUDGET_BYTES, show_error, show_result, take_losses
from sandbox.agent.tools import Tool
from sandbox.errors import SandboxError
from sandbox.workbench import Workbench


def success(tool: Tool, result: BaseModel, budget_bytes: int = BUDGET_BYTES) -> types.CallToolResult:
    """The result of a call, at most `budget_bytes` of JSON."""
    shown = show_result(tool, result, budget_bytes)
    content = [types.TextContent(type="text", text=text) for text in (shown.text, shown.notice) if text]
    return types.CallToolResult(content=list(content), structured_content=shown.document)


def failure(error: SandboxError, home: Path, budget_bytes: int = BUDGET_BYTES) -> types.CallToolResult:
    """A typed error as content, at most `budget_bytes` of JSON."""
    text = show_error(error, home, budget_bytes)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=json.loads(text), is_error=True
    )


def add_losses(
    answer: types.CallToolResult, workbench: Workbench, arguments: Mapping[str, Any] | None
) -> types.CallToolResult:
    """With what `take_losses` says, as notes."""
    found = take_losses(workbench, arguments or {})
    losses = [types.TextContent(type="text", text=f"The cluster says of {loss}") for loss in found]
    return answer.model_copy(update={"content": [*answer.content, *losses]}) if losses else answer
