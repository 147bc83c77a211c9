"""The snippet each client wants in its configuration. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

NAME = "space-sandbox"


@dataclass(frozen=True)
class Client:
    """Where the snippet goes, and what it looks like for a command and its arguments."""

    where: str
    snippet: Callable[[str, Sequence[str]], str]


def _json(document: object) -> str:
    return json.dumps(document, indent=2)


def _servers(command: str, arguments: Sequence[str]) -> str:
    return _json({"mcpServers": {NAME: {"command": command, "args": list(arguments)}}})


def _vscode(command: str, arguments: Sequence[str]) -> str:
    return _json({"servers": {NAME: {"type": "stdio", "command": command, "args": list(arguments)}}})


def _codex(command: str, arguments: Sequence[str]) -> str:
    return f"[mcp_servers.{NAME}]\ncommand = {json.dumps(command)}\nargs = {json.dumps(list(arguments))}"


CLIENTS = {
    "claude": Client("claude_desktop_config.json, or .mcp.json of a project for Claude Code", _servers),
    "cursor": Client("~/.cursor/mcp.json, or .cursor/mcp.json of a project", _servers),
    "vscode": Client(".vscode/mcp.json of a project, or `MCP: Open User Configuration`", _vscode),
    "codex": Client("~/.codex/config.toml", _codex),
}
