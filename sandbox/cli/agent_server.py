"""What `sandbox mcp` serves: agents over standard streams or HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sandbox.cli.detach import Starter, fork
from sandbox.cli.invocation import Invocation, note

if TYPE_CHECKING:
    from sandbox.agent.agent import Agent
    from sandbox.workbench import Workbench


@dataclass(frozen=True)
class ServerOptions:
    """Options of `sandbox mcp` for both transports. `presets`: words of `--tools`; None: all of them, as needed."""

    approvals: Literal["policy", "auto"]
    presets: tuple[str, ...] | None


def serve_standard_streams(invocation: Invocation, options: ServerOptions) -> int:
    """Serve the client at our standard streams, in a second process.

    Clients kill the process that they started after a few seconds. So that process ends with the session, and the
    second process lives until the last check of the session has ended, at its deadline at the latest.
    """
    role = fork()
    if isinstance(role, Starter):
        message = role.wait_for_message()
        return message[0] if message else role.wait_for_end()
    from sandbox.agent.transports.stdio import serve_stdio  # noqa: PLC0415 - lazy: the SDK loads for most of a second

    role.end_with_starter()
    with invocation.agent_workbench() as workbench:
        agent = make_agent(workbench, options)
        serve_stdio(agent)
        role.report(bytes([0]))
        if agent.on_disconnect == "keep":
            workbench.wait_for_runs()
    return 0


def serve_http_address(invocation: Invocation, options: ServerOptions, address: str, token_file: Path | None) -> int:
    """Serve clients over HTTP until a signal. Checks that are running then are stopped."""
    from sandbox.agent.transports.http import serve_http  # noqa: PLC0415 - as above

    with invocation.agent_workbench() as workbench:
        serve_http(make_agent(workbench, options), address, token_file, _print_address)
    return 0


def make_agent(workbench: Workbench, options: ServerOptions) -> Agent:
    """The agent surface of a server with these options, on this workbench."""
    from sandbox.agent.agent import Agent  # noqa: PLC0415 - as above
    from sandbox.agent.tools import Preset  # noqa: PLC0415 - as above

    settings = workbench.settings.agent
    return Agent(
        workbench,
        workbench.home,
        options.approvals,
        None if options.presets is None else frozenset(map(Preset.from_word, options.presets)),
        settings.result_bytes,
        settings.sessions,
        settings.on_disconnect,
    )


def _print_address(url: str, token_file: Path) -> None:
    note(f"serving at {url} - the bearer token is in {token_file}")
