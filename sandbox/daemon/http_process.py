"""The daemon's process that serves HTTP: at a Unix socket for processes of our user, at TCP for who has the token.

It is a controller like any other. On SIGTERM it ends as `sandbox mcp --http` does. On SIGUSR1, when the daemon starts a
newer program or its main process was killed, it accepts no more requests and ends when the last check that it runs has
ended, or at another signal as on SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from types import FrameType

import anyio
from starlette.types import ASGIApp

from sandbox.agent.agent import Agent
from sandbox.agent.transports.http import LifelongServer, make_uvicorn
from sandbox.agent.transports.shutdown import handle_signals
from sandbox.agent.transports.timeouts import TimeoutProtocol
from sandbox.config import ServeSettings
from sandbox.daemon.calls_in_progress import CallsInProgress
from sandbox.daemon.desktop_notifications import find_notifier
from sandbox.daemon.event_stream import EventHub
from sandbox.daemon.parent_death import outlive_parent
from sandbox.daemon.peers import find_difference, identify_peer, is_same_user
from sandbox.daemon.receivers import Deliveries, EventReceiver
from sandbox.daemon.routes import HttpOptions, make_applications
from sandbox.daemon.telemetry import Telemetry
from sandbox.daemon.timers import make_timers, start_timers
from sandbox.daemon.webhooks import Webhook
from sandbox.memory import prepare_server
from sandbox.models import ApprovalState
from sandbox.workbench import Workbench

_END_S = 5.0
"""How long the end waits for events that are being sent; what is cut off, the next daemon sends."""


@dataclass(frozen=True)
class Controllers:
    """`agent`: for MCP and the JSON API. `person`: for the dashboard: its decisions are those of a person."""

    agent: Agent
    person: Workbench


def serve_http_process(
    controllers: Controllers, options: HttpOptions, unix_listener: socket.socket, tcp_listener: socket.socket | None
) -> int:
    """Serve until a signal. Returns the exit code of the process."""
    prepare_server()
    agent = controllers.agent
    hub = EventHub(agent.workbench)
    settings = agent.workbench.settings.serve
    deliveries = Deliveries(agent.home, list(_make_receivers(settings, controllers.person)))
    apps, calls = make_applications(agent, controllers.person, hub, options), CallsInProgress()
    for_our_user = calls.counting(apps.for_our_user)
    ending = _Ending(agent, hub, deliveries, calls)
    protocol = _make_protocol(for_our_user, calls.counting(apps.for_network))
    server = make_uvicorn(for_our_user, ending.shut_down, protocol)
    signal.signal(signal.SIGUSR1, partial(ending.drain, server))
    with handle_signals(partial(ending.end_now, server)):
        deliveries.start()
        start_timers(make_timers(controllers.person, settings, agent.workbench.settings.pool.size), ending.begun)
        anyio.run(server.serve, [one for one in (unix_listener, tcp_listener) if one is not None])
    deliveries.wait(_END_S)
    if ending.is_draining:
        agent.workbench.wait_for_runs()
    return 0


def _make_receivers(settings: ServeSettings, person: Workbench) -> Iterator[EventReceiver]:
    """Who gets each event, beside those who listen over HTTP."""
    yield from map(Webhook, settings.webhook)
    if settings.desktop and (notifier := find_notifier(os.environ, partial(_is_question_open, person))):
        yield notifier
    if settings.otlp_url:
        yield Telemetry(settings.otlp_url)


def _is_question_open(person: Workbench, task_id: str | None) -> bool:
    return any(one.task_id == task_id and one.state is ApprovalState.PENDING for one in person.approvals())


class _Ending:
    """How this process ends: at once, or, when a newer program has taken over, without stopping what it does."""

    def __init__(self, agent: Agent, hub: EventHub, deliveries: Deliveries, calls: CallsInProgress) -> None:
        self._agent, self._hub, self._deliveries, self._calls = agent, hub, deliveries, calls
        self.is_draining = False
        self.begun = threading.Event()

    def drain(self, server: LifelongServer, number: int, frame: FrameType | None) -> None:
        """A signal handler."""
        outlive_parent()
        self.is_draining = True
        server.finish_calls = self._finish_calls
        server.handle_exit(number, frame)

    def end_now(self, server: LifelongServer, number: int, frame: FrameType | None) -> None:
        """A signal handler: a signal that asks to end ends the wait for calls, too."""
        self.is_draining = False
        self._calls.cut_off()
        server.handle_exit(number, frame)

    async def _finish_calls(self) -> None:
        await self._calls.wait_until_none()
        if not self.is_draining:
            self._agent.workbench.end_network()

    def shut_down(self) -> None:
        """The server begins to end its connections."""
        self.begun.set()
        self._hub.end()
        self._deliveries.end()
        if not self.is_draining:
            self._agent.workbench.end_network()


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
