"""The HTTP server of our applications: uvicorn, which leaves signals to us."""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext

import uvicorn
from starlette.types import ASGIApp

from sandbox.agent.transports.timeouts import ACCEPTED_AT_ONCE, HEAD_S, TimeoutProtocol

_GRACE_S = 5


def make_uvicorn(
    app: ASGIApp, end_network: Callable[[], None], protocol: type[TimeoutProtocol] = TimeoutProtocol
) -> LifelongServer:
    """A server for our applications; `end_network`: called when it begins to shut down."""
    return LifelongServer(
        end_network,
        uvicorn.Config(
            app,
            http=protocol,
            ws="none",  # an upgrade would leave the deadlines and the bound of `protocol`, if a library for it is there
            log_level="warning",
            access_log=False,
            server_header=False,
            backlog=ACCEPTED_AT_ONCE,
            timeout_graceful_shutdown=_GRACE_S,
            # Clients use a connection again for 5 s (httpx) or more. If the server closed it then as well, which is
            # uvicorn's default, a request could meet the end of its connection. The deadline of a head closes it.
            timeout_keep_alive=int(HEAD_S),
        ),
    )


class LifelongServer(uvicorn.Server):
    """Leaves signals to us: uvicorn would raise them again after it stopped, with another exit code for each.

    `finish_calls`: awaited when the server accepts no more requests, before it cuts off what takes longer than
    `_GRACE_S`.
    """

    def __init__(self, end_network: Callable[[], None], config: uvicorn.Config) -> None:
        super().__init__(config)
        self._end_network = end_network
        self.finish_calls: Callable[[], Awaitable[None]] | None = None

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As in uvicorn, without its error and traceback for each answer that the shutdown interrupts."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self._end_network()
        if self.finish_calls is not None:
            self._refuse_requests(sockets or [])
            await self.finish_calls()
        await super().shutdown(sockets)

    def _refuse_requests(self, sockets: list[socket.socket]) -> None:
        """The first steps of uvicorn's shutdown: a connection ends after the answer that it waits for."""
        for server in self.servers:
            server.close()
        for listener in sockets:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]  # a generator there
        """Install no handlers."""
        return nullcontext()
