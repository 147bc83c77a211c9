"""`sandbox mcp`: serve agents, and print the configuration of their clients."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Literal

import click

from sandbox.cli.agent_server import ServerOptions, serve_http_address, serve_standard_streams
from sandbox.cli.invocation import Invocation, global_options, note, show_examples

_ENVIRONMENT_OF_UVX = re.compile(r"/(archive|environments)-v\d+/")


_PRESETS = ("discover", "edit", "check", "pr")


class _ToolPresets(click.ParamType[tuple[str, ...] | None]):
    """`presets` is None; `all` or a list of presets is their names, which may be whole, as `repo-edit-tools`."""

    name = "presets"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...] | None:
        """Raises: `click.UsageError` for an unknown word."""
        if value in {"presets", "all"}:
            return None if value == "presets" else _PRESETS
        words = tuple(word.strip().removeprefix("repo-").removesuffix("-tools") for word in value.split(","))
        if unknown := [word for word in words if word not in _PRESETS]:
            self.fail(f"{unknown[0]!r} is none of presets, all, {', '.join(_PRESETS)}", param, ctx)
        return words


@show_examples(
    ("sandbox mcp config claude", "what makes a client start this server"),
    ("sandbox mcp --http 127.0.0.1:8321", "serve clients that connect over HTTP"),
)
@click.group(invoke_without_command=True)
@click.option(
    "--http", "address", metavar="HOST:PORT", help="Serve over streamable HTTP. Default: standard input and output."
)
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with the bearer token for --http. Default: a generated token in the home.",
)
@click.option(
    "--tools", type=_ToolPresets(), default="presets", metavar="presets|all|PRESET,...",
    help="all: list every tool at once. PRESET (discover, edit, check, pr): list only these, and those that clone. "
    "Default: those that clone, then all when there is a repository.",
)  # fmt: skip
@click.option(
    "--approvals",
    type=click.Choice(["policy", "auto"]),
    default="policy",
    help="auto: allow calls without asking, for trusted automation; not a promotion or another profile.",
)
@global_options
@click.pass_context
def mcp(
    ctx: click.Context,
    address: str | None,
    token_file: Path | None,
    tools: tuple[str, ...] | None,
    approvals: Literal["policy", "auto"],
) -> int:
    """Serve agents over the Model Context Protocol until the client disconnects.

    A check that is running then continues to its end, unless agent.on_disconnect is "stop".
    """
    if ctx.invoked_subcommand is not None:
        return 0
    invocation, options = ctx.ensure_object(Invocation), ServerOptions(approvals, tools)
    if address is None:
        return serve_standard_streams(invocation, options)
    return serve_http_address(invocation, options, address, token_file)


@mcp.command()
@click.argument("client", type=click.Choice(["claude", "cursor", "vscode", "codex"]))
@global_options
@click.pass_obj
def config(invocation: Invocation, client: str) -> None:
    """Print the configuration snippet that makes CLIENT start this sandbox.

    The snippet works from any directory and starts this installation with this home and these settings. Settings from
    environment variables are included. Secrets and variables that change with each login are not; stderr names them.
    """
    from sandbox.agent.clients import CLIENTS  # noqa: PLC0415 - lazy: the command starts fast
    from sandbox.agent.launch import build_launch  # noqa: PLC0415 - as above

    found = CLIENTS[client]
    start = build_launch(_find_home(invocation.home), sys.executable, sys.argv[0], os.environ)
    snippet = found.snippet(start)
    note(f"add this to {found.where}")
    for name, reason in start.left_out.items():
        note(f"without {name}: {reason}")
    if _ENVIRONMENT_OF_UVX.search(start.command):
        note("this environment is in the cache of uv, which may be deleted: use `uv tool install` instead")
    document = {"client": client, "where": found.where, "snippet": snippet, "left_out": dict(start.left_out)}
    invocation.emit(document, lambda: click.echo(snippet))


def _find_home(named: Path | None) -> Path | None:
    """The home of this command, if a client that passes on only `HOME` would use another one."""
    from sandbox.store.home import default_home, resolve_home  # noqa: PLC0415 - as above

    if named is not None:
        return resolve_home(named)
    return default_home(os.environ) if os.environ.get("SANDBOX_HOME") or os.environ.get("XDG_DATA_HOME") else None
