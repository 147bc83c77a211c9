"""The daemon's HTTP server: at a Unix socket for processes of our user, at TCP for clients with the token."""

from __future__ import annotations

import asyncio
import socket
from types import FrameType

import anyio
from starlette.types import ASGIApp

from sandbox.agent.transports.lifelong_server import make_uvicorn
from sandbox.agent.transports.timeouts import TimeoutProtocol
from sandbox.daemon.calls_in_progress import CallsInProgress
from sandbox.daemon.ending import Ending
from sandbox.daemon.event_stream import EventHub
from sandbox.daemon.peers import find_difference, identify_peer, is_same_user
from sandbox.daemon.routes import Applications, make_applications
from sandbox.daemon.served_home import Controllers, HttpOptions, HttpSockets


def serve_web(controllers: Controllers, options: HttpOptions, listeners: HttpSockets, ending: Ending) -> None:
    """Serve until a signal."""
    hub = EventHub(controllers.workbench)
    server = WebServer(make_applications(controllers, hub, options), hub, ending)
    ending.attach(server)
    anyio.run(server.serve, listeners)


class WebServer:
    """Answers requests until it is stopped; then it waits for the answers, or not, as `ending` says."""

    def __init__(self, apps: Applications, hub: EventHub, ending: Ending) -> None:
        self._calls, self._hub, self._ending = CallsInProgress(), hub, ending
        for_our_user = self._calls.counting(apps.for_our_user)
        for_network = apps.guard_network(self._calls.counting(apps.for_network))  # an upgrade waits for no stranger
        protocol = _make_protocol(for_our_user, for_network)
        self._server = make_uvicorn(for_our_user, self._shut_down, protocol)

    async def serve(self, listeners: HttpSockets) -> None:
        """Serve at these sockets."""
        await self._server.serve(listeners.list_open())

    def stop(self, number: int, frame: FrameType | None) -> None:
        """See `Server`."""
        if self._ending.is_draining:
            self._server.finish_calls = self._finish_calls
        self._server.handle_exit(number, frame)

    def cut_off(self) -> None:
        """See `Server`."""
        self._calls.cut_off()

    async def _finish_calls(self) -> None:
        await self._calls.wait_until_none()
        self._ending.end_network()

    def _shut_down(self) -> None:
        """The server begins to end its connections."""
        self._hub.end()
        self._ending.begin()


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
