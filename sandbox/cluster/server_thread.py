"""The thread in which a home speaks to its Temporal server."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from temporalio.client import Client

from sandbox.cluster.dispatcher import make_closed_error
from sandbox.cluster.temporal_client import ClusterAddress, connect_client, end_threads, make_runtime

_CANCELLED_AGAIN_S, _CANCELLED_S = 0.2, 10.0
"""A request may take a cancellation for a failure of the server, and be made again; it is then cancelled again, for so
long at most.
"""

_ResultT = TypeVar("_ResultT")


class ServerThread:
    """Connects when it is made. Thread-safe. Raises: as `connect_client`."""

    def __init__(self, place: ClusterAddress) -> None:
        self._is_closed, self._closing = False, threading.Lock()
        self._runtime = make_runtime(is_quiet=True)
        self._client: Client | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="temporal", daemon=True)
        self._thread.start()
        try:
            self._client = self.wait(connect_client(place, self._runtime, is_caller=True))
        except BaseException:
            self.close()
            raise

    @property
    def client(self) -> Client:
        """Raises: `network_error` (`reason`: `connection_closed`) after `close`."""
        client = self._client
        if client is None:
            raise make_closed_error()
        return client

    def wait(self, work: Coroutine[Any, Any, _ResultT]) -> _ResultT:
        """What the work returns. Raises: what it raises; `network_error` (`reason`: `connection_closed`) if it did not
        end before `close`.
        """
        with self._closing:
            if self._is_closed:
                work.close()
                raise make_closed_error()
            asked = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return asked.result()
        except CancelledError:
            raise make_closed_error() from None
        except KeyboardInterrupt:
            asked.cancel()  # or it would be sent after what undoes it
            raise

    def close(self) -> None:
        """End the requests in progress, this thread and those of the client library."""
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        client, self._client = self._client, None
        end_threads(self._runtime, client)


async def _cancel_others() -> None:
    """End all that runs in this loop."""
    others, ends_at = asyncio.all_tasks() - {asyncio.current_task()}, time.monotonic() + _CANCELLED_S
    while others and time.monotonic() < ends_at:
        for task in others:
            task.cancel()
        _, others = await asyncio.wait(others, timeout=_CANCELLED_AGAIN_S)
