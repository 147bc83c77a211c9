"""The queues on which a worker is offered tasks of the repositories that it has: the ones used last."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from sandbox.errors import describe_briefly

MOST_QUEUES = 32
"""Each is one more request that waits at the server. Reached: the queue of the repository used longest ago is read no
more; tasks of it come over the shared queue.
"""

_log = logging.getLogger(__name__)


class Poller(Protocol):
    """What reads one queue."""

    async def run(self) -> None:
        """Read until it is shut down."""
        ...

    async def shutdown(self) -> None:
        """Stop reading, and wait for what was read."""
        ...


class RepositoryQueues:
    """`start`: makes the poller of a repository's queue, by the repository's key. For one event loop."""

    def __init__(self, start: Callable[[str], Poller], most: int = MOST_QUEUES) -> None:
        self._start, self._most = start, most
        self._pollers: OrderedDict[str, Poller] = OrderedDict()  # the one used longest ago first
        self._running: dict[str, asyncio.Task[None]] = {}  # also those that are ending
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def use(self, key: str) -> None:
        """Read the queue of a repository, as one that was used just now. It is not read while its last reader ends, nor
        after `close`.
        """
        if key not in self._pollers:
            if self._is_closed or key in self._running:
                return
            try:
                self._pollers[key] = poller = self._start(key)
            except Exception as error:  # noqa: BLE001 - as below
                _log.warning("offers of repository %s cannot be read: %s", key, describe_briefly(error))
                return
            self._running[key] = asyncio.create_task(self._run(key, poller))
        self._pollers.move_to_end(key)
        while len(self._pollers) > self._most:
            self.drop(next(iter(self._pollers)))

    def drop(self, key: str) -> None:
        """Read the queue of a repository no more. What was read is answered."""
        poller = self._pollers.pop(key, None)
        if poller is not None:
            ending = asyncio.create_task(poller.shutdown())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Read none any more. Returns when what was read has been answered."""
        self._is_closed = True
        for key in [*self._pollers]:
            self.drop(key)
        await asyncio.gather(*self._running.values(), *self._ending)

    async def _run(self, key: str, poller: Poller) -> None:
        try:
            await poller.run()
        except Exception as error:  # noqa: BLE001 - without this queue the worker works on
            _log.warning("offers of repository %s are read no more: %s", key, describe_briefly(error))
            self._pollers.pop(key, None)
        finally:
            del self._running[key]
