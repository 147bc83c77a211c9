"""`sandbox mcp`: serve agents, and tell how to configure their clients."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import click

from sandbox.cli.invocation import Invocation, global_options, note
from sandbox.cli.serving import ServerOptions, serve_address, serve_client


@click.group(invoke_without_command=True)
@click.option(
    "--http", "address", metavar="HOST:PORT", help="Serve over streamable HTTP; default: standard input and output."
)
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with the bearer token for --http; default: one of our own in the home.",
)
@click.option("--tools", type=click.Choice(["presets", "all"]), default="presets", help="all: listed from the start.")
@click.option(
    "--approvals",
    type=click.Choice(["policy", "auto"]),
    default="policy",
    help="auto: nobody is asked; for trusted automation.",
)
@global_options
@click.pass_context
def mcp(
    ctx: click.Context, address: str | None, token_file: Path | None, tools: str, approvals: Literal["policy", "auto"]
) -> int:
    """Serve agents over the Model Context Protocol, until the client goes.

    A check that runs when the client goes is not lost: it runs on to its end (agent.on_disconnect).
    """
    if ctx.invoked_subcommand is not None:
        return 0
    invocation, options = ctx.ensure_object(Invocation), ServerOptions(approvals, tools == "all")
    if address is None:
        return serve_client(invocation, options)
    return serve_address(invocation, options, address, token_file)


@mcp.command()
@click.argument("client", type=click.Choice(["claude", "cursor", "vscode", "codex"]))
@global_options
@click.pass_obj
def config(invocation: Invocation, client: str) -> None:
    """Print what CLIENT needs in its configuration to start this sandbox."""
    from sandbox.agent.clients import CLIENTS  # noqa: PLC0415 - lazy: the command starts fast

    found = CLIENTS[client]
    home = ["--home", str(invocation.home.absolute())] if invocation.home else []
    arguments = ["-m", "sandbox", *home, "mcp"]
    snippet = found.snippet(sys.executable, arguments)
    note(f"goes into {found.where}")
    invocation.emit({"client": client, "where": found.where, "snippet": snippet}, lambda: click.echo(snippet))
