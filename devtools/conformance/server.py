"""Our server without its token, which the suite cannot send: `python -m devtools.conformance.server HOME`."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import anyio
import uvicorn

from sandbox.agent.agent import Agent
from sandbox.agent.tools import Preset
from sandbox.agent.transports.mcp_endpoint import make_app
from sandbox.workbench import Workbench


def main(home: str) -> None:
    """Serve on a free port of the loopback interface, and print the address."""
    with Workbench(Path(home)) as workbench, socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
        app = make_app(Agent(workbench, workbench.home, "auto", presets=frozenset(Preset)), "127.0.0.1", port)
        sys.stdout.write(f"http://127.0.0.1:{port}/mcp\n")
        sys.stdout.flush()
        anyio.run(uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve, [listener])


if __name__ == "__main__":
    main(sys.argv[1])
