"""`sandbox mcp`: serve agents, and tell how to configure their clients."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sandbox.cli.invocation import Invocation, global_options, note


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
def mcp(ctx: click.Context, address: str | None, token_file: Path | None, tools: str, approvals: str) -> None:
    """Serve agents over the Model Context Protocol, until the client goes."""
    if ctx.invoked_subcommand is not None:
        return
    from sandbox.agent.http import serve_http  # noqa: PLC0415 - lazy: the SDK takes most of a second to load
    from sandbox.agent.server import Agent  # noqa: PLC0415 - as above
    from sandbox.agent.stdio import serve_stdio  # noqa: PLC0415 - as above

    invocation = ctx.ensure_object(Invocation)
    with invocation.agent_workbench() as workbench:
        agent = Agent(
            workbench,
            workbench.home,
            approvals,  # type: ignore[arg-type]  # click chose
            tools == "all",
            workbench.settings.agent.result_bytes,
            workbench.settings.agent.sessions,
        )
        if address is None:
            serve_stdio(agent)
        else:
            serve_http(agent, address, token_file, _ready)


def _ready(url: str, token_file: Path) -> None:
    note(f"serving at {url}; the bearer token is in {token_file}")


@mcp.command()
@click.argument("client", type=click.Choice(["claude", "cursor", "vscode", "codex"]))
@global_options
@click.pass_obj
def config(invocation: Invocation, client: str) -> None:
    """Print what CLIENT needs in its configuration to start this sandbox."""
    from sandbox.agent.clients import CLIENTS  # noqa: PLC0415 - as above

    found = CLIENTS[client]
    home = ["--home", str(invocation.home.absolute())] if invocation.home else []
    arguments = ["-m", "sandbox", *home, "mcp"]
    snippet = found.snippet(sys.executable, arguments)
    note(f"goes into {found.where}")
    invocation.emit({"client": client, "where": found.where, "snippet": snippet}, lambda: click.echo(snippet))
