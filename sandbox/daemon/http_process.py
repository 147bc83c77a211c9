"""The daemon's process that serves HTTP: at a Unix socket for processes of our user, at TCP for who has the token.

It is a controller like any other. On SIGTERM it ends as `sandbox mcp --http` does. On SIGUSR1, when the daemon starts a
newer program, it accepts nothing more and ends when the last check that it runs has ended.
"""

from __future__ import annotations

import asyncio
import ctypes
import signal
import socket
from types import FrameType

import anyio
from starlette.types import ASGIApp

from sandbox.agent.agent import Agent
from sandbox.agent.transports.http import LifelongServer, make_uvicorn
from sandbox.agent.transports.shutdown import handle_signals
from sandbox.agent.transports.timeouts import TimeoutProtocol
from sandbox.daemon.peers import find_difference, identify_peer, is_same_user
from sandbox.daemon.routes import HttpOptions, make_applications

_PR_SET_PDEATHSIG = 1  # prctl(2)


def serve_http_process(
    agent: Agent, options: HttpOptions, unix_listener: socket.socket, tcp_listener: socket.socket | None
) -> int:
    """Serve until a signal. Returns the exit code of the process."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    apps = make_applications(agent, options)
    protocol = _make_protocol(apps.for_our_user, apps.for_network)
    server = make_uvicorn(apps.for_our_user, agent.workbench.end_network, protocol)
    drain = _Drain(server)
    signal.signal(signal.SIGUSR1, drain.begin)
    with handle_signals(server.handle_exit):
        anyio.run(server.serve, [one for one in (unix_listener, tcp_listener) if one is not None])
    if drain.has_begun:
        agent.workbench.wait_for_runs()
    return 0


class _Drain:
    """End without stopping a check or a transfer."""

    def __init__(self, server: LifelongServer) -> None:
        self._server = server
        self.has_begun = False

    def begin(self, number: int, frame: FrameType | None) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0)
        self.has_begun = True
        self._server.keep_network()
        self._server.handle_exit(number, frame)


def _make_protocol(for_our_user: ASGIApp, for_network: ASGIApp) -> type[TimeoutProtocol]:
    """A connection of the Unix socket is known by its process, one of TCP by its token: each has its application."""

    class Protocol(TimeoutProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
            super().connection_made(transport)
            connection = transport.get_extra_info("socket")
            if connection.family != socket.AF_UNIX:
                self.app = for_network
            elif _may_connect(connection):
                self.app = for_our_user
            else:
                transport.abort()

    return Protocol


def _may_connect(connection: socket.socket) -> bool:
    peer = identify_peer(connection)
    return is_same_user(peer) and not find_difference(connection, peer)
