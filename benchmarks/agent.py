"""S18: the cost of our tools above the SDK's bare server, in process: listing tools, and a trivial call."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.client.client import Client
from mcp.server import Server

from benchmarks._harness import ROUNDS, judge
from sandbox.agent.agent import Agent
from sandbox.agent.server import make_server
from sandbox.agent.tools import Preset
from sandbox.workbench import Workbench

CALLS = 10  # per measurement; one call takes about a millisecond


def bare(tools: list[types.Tool], answer: types.CallToolResult) -> Server[Any]:
    """The SDK's server with the same list of tools and a constant result."""

    async def list_tools(*_: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(*_: object) -> types.CallToolResult:
        return answer

    return Server("bare", on_list_tools=list_tools, on_call_tool=call_tool)


async def timed(action: Callable[[], Awaitable[object]]) -> float:
    """The mean milliseconds of one call, over `CALLS` calls."""
    started = time.perf_counter()
    for _ in range(CALLS):
        await action()
    return (time.perf_counter() - started) * 1000 / CALLS


async def measure(workbench: Workbench) -> None:
    """Measure both servers in turn, with the same kind of client."""
    async with Client(make_server(Agent(workbench, workbench.home, "auto", presets=frozenset(Preset)))) as ours:
        tools = (await ours.list_tools()).tools
        answer = await ours.call_tool("space_repo_list", {})
        async with Client(bare(tools, answer)) as floor:
            actions: dict[str, Callable[[Client], Callable[[], Awaitable[object]]]] = {
                "S18 list tools": lambda client: client.list_tools,
                "S18 call a trivial tool": lambda client: lambda: client.call_tool("space_repo_list", {}),
            }
            for name, action in actions.items():
                await timed(action(ours))
                pairs = [(await timed(action(ours)), await timed(action(floor))) for _ in range(ROUNDS)]
                judge(name, pairs, floor_name="the SDK's bare server", target="1.2x")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Workbench(Path(folder) / "home") as workbench:
        anyio.run(measure, workbench)


if __name__ == "__main__":
    main()
