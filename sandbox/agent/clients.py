"""The configuration snippet for each client. Pure.

How long a client waits for one call of a tool, where that can be configured (looked up in November 2026):

- Claude Code: `timeout` of a server in .mcp.json, in milliseconds, instead of `MCP_TOOL_TIMEOUT`
  (code.claude.com/docs/en/mcp).
- Claude Desktop: not configurable, the 60 s of the TypeScript SDK (anthropics/claude-code#22542).
- Codex: `tool_timeout_sec` of a server, and `startup_timeout_sec` for its start (openai/codex#3959).
- Cursor: not configurable. VS Code: not configurable, no limit (microsoft/vscode#311595).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sandbox.agent.launch import Launch

NAME = "space-sandbox"
TOOL_TIMEOUT_S = 3600
"""How long a client should wait: longer than the shipped limits let a clone or check take. We enforce those limits."""
STARTUP_TIMEOUT_S = 30


@dataclass(frozen=True)
class Client:
    """Where the snippet goes, and how to write it."""

    where: str
    snippet: Callable[[Launch], str]


def _stdio(launch: Launch) -> dict[str, Any]:
    env = {"env": dict(launch.env)} if launch.env else {}
    return {"command": launch.command, "args": list(launch.arguments), **env}


def _json_snippet(key: str, **more: object) -> Callable[[Launch], str]:
    def snippet(launch: Launch) -> str:
        return json.dumps({key: {NAME: {**_stdio(launch), **more}}}, indent=2)

    return snippet


def _codex_snippet(launch: Launch) -> str:
    env = ", ".join(f"{_toml(name)} = {_toml(value)}" for name, value in launch.env.items())
    lines = [
        f"[mcp_servers.{NAME}]",
        f"command = {_toml(launch.command)}",
        f"args = [{', '.join(map(_toml, launch.arguments))}]",
        *([f"env = {{ {env} }}"] if env else []),
        f"startup_timeout_sec = {STARTUP_TIMEOUT_S}",
        f"tool_timeout_sec = {TOOL_TIMEOUT_S}",
    ]
    return "\n".join(lines)


def _toml(text: str) -> str:
    """A TOML basic string: as in JSON, but without surrogate pairs, and DEL must be escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


CLIENTS = {
    "claude": Client(
        "claude_desktop_config.json, or .mcp.json of a project for Claude Code",
        _json_snippet("mcpServers", timeout=TOOL_TIMEOUT_S * 1000),
    ),
    "cursor": Client("~/.cursor/mcp.json, or .cursor/mcp.json of a project", _json_snippet("mcpServers")),
    "vscode": Client(
        ".vscode/mcp.json of a project, or `MCP: Open User Configuration`", _json_snippet("servers", type="stdio")
    ),
    "codex": Client("~/.codex/config.toml", _codex_snippet),
}
