"""`sandbox mcp` as a process of its own, over either transport, and the words of an agent that is a script.

The first server of each transport starts as users start it, the others are forks: `devtools.forked`.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx2
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from devtools.command import Command, find_command_line

Transport = Literal["stdio", "http"]
Session = Callable[[Client], Awaitable[None]]
_READY = re.compile(r"serving at (http://\S+/mcp) - the bearer token is in (.+)")


@dataclass
class AgentServer:
    """Serves one home. Over HTTP one process serves all clients, and `pid` is its, or of the one that stands for it;
    over stdio each has its own.

    `said`: what it wrote to standard error, once it has ended.
    """

    home: Path
    transport: Transport
    options: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    pid: int = 0
    said: str = ""
    _process: subprocess.Popen[str] | None = None
    _url: str = ""
    _token: str = ""

    @property
    def _environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SANDBOX_")}
        return {**kept, **self.env}

    @property
    def _argv(self) -> list[str]:
        command = find_command_line(("mcp", self.transport), self._environment)
        return [*command, "--home", str(self.home), "mcp", *self.options]

    def start(self) -> None:
        """Start the process that serves HTTP; nothing to do over stdio."""
        if self.transport == "stdio":
            return
        self._process = subprocess.Popen(
            [*self._argv, "--http", "127.0.0.1:0"],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
        )
        assert self._process.stderr is not None
        found = _READY.match(self._process.stderr.readline())
        assert found is not None, self._process.stderr.read()
        self._url, self._token = found[1], Path(found[2]).read_text().strip()
        self.pid = self._process.pid

    def stop(self) -> int | None:
        """End what `start` started; its exit code, None when there is nothing."""
        if self._process is None:
            return None
        process, self._process = self._process, None
        process.terminate()
        _, self.said = process.communicate(timeout=60)
        return process.returncode

    @property
    def url(self) -> str:
        """Where the process serves."""
        return self._url

    @property
    def token(self) -> str:
        """What every request must bring."""
        return self._token

    @asynccontextmanager
    async def client(self, mode: str = "auto", **options: Any) -> AsyncIterator[Client]:
        """One session. Over stdio a server of its own starts and ends with it."""
        if self.transport == "stdio":
            command, *arguments = self._argv
            server = StdioServerParameters(command=command, args=arguments, env=self._environment)
            async with Client(stdio_client(server), mode=mode, **options) as found:
                yield found
            return
        headers = {"authorization": f"Bearer {self._token}"}
        timeout = httpx2.Timeout(60.0, read=300.0)
        async with (
            httpx2.AsyncClient(headers=headers, timeout=timeout) as http,
            Client(streamable_http_client(self._url, http_client=http), mode=mode, **options) as found,
        ):
            yield found


def talk(server: AgentServer, *sessions: Session, seconds: float = 240, **options: Any) -> None:
    """Each session after the other, each with a client of its own."""

    async def run() -> None:
        with anyio.fail_after(seconds):
            for session in sessions:
                async with server.client(**options) as client:
                    await session(client)

    anyio.run(run)


async def ok(client: Client, name: str, /, **arguments: Any) -> dict[str, Any]:
    """What a tool answers that must succeed."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.structured_content
    found: dict[str, Any] = result.structured_content
    return found


async def failed(client: Client, name: str, code: str, /, **arguments: Any) -> dict[str, Any]:
    """The error of a tool that must fail with this code."""
    result = await client.call_tool(name, arguments)
    assert result.is_error, result.structured_content
    found: dict[str, Any] = result.structured_content["error"]
    assert found["code"] == code, found
    return found


async def approved(client: Client, person: Command, name: str, /, **arguments: Any) -> dict[str, Any]:
    """A call that a person approves at the command line while the agent waits."""
    required = await failed(client, name, "approval_required", **arguments)
    await anyio.to_thread.run_sync(person.ok, "approvals", "approve", required["data"]["approval_id"])
    return await ok(client, name, **arguments)
