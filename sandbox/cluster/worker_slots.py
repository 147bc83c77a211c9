"""The slots of a worker: how many operations it carries out before it takes no more tasks.

Theory. A task that waits for its caller uses no processor, so slots are of operations, not of tasks. Operations of
the tasks that a worker has are never refused: they can run nowhere else, until the worker ends. A task that was
accepted has a slot until its first operation takes one, so that two offers at the same time do not get the same one.
For one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

RESERVED_S = 15.0
"""How long an accepted task may not have begun; reached: its slot is free again. Its workflow may have moved on."""


class WorkerSlots:
    """`count`: of operations; reached: no task is accepted until one of them has ended."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._running = 0
        self._reserved: dict[str, asyncio.TimerHandle] = {}
        self._free, self._idle = asyncio.Event(), asyncio.Event()
        self.is_draining = False
        """Whether operations that change a task are not begun any more."""
        self._update()

    def reserve(self, task: str) -> bool:
        """Keep a slot for the first operation of a task. Returns whether there was one."""
        is_ours = self._release(task)
        if not is_ours and not self._free.is_set():
            return False
        self._reserved[task] = asyncio.get_running_loop().call_later(RESERVED_S, self._release, task)
        self._update()
        return True

    @contextmanager
    def occupied(self, task: str) -> Iterator[None]:
        """An operation of a task runs in the body, also if no slot is free."""
        self._running += 1
        self._release(task)
        try:
            yield
        finally:
            self._running -= 1
            self._update()

    async def wait_until_free(self) -> None:
        """Wait until a task could be accepted."""
        await self._free.wait()

    async def drain(self) -> None:
        """Have no more operations begin that change a task, and wait until those in progress have ended."""
        self.is_draining = True
        await self._idle.wait()

    @property
    def running(self) -> int:
        """Operations in progress, but for reading ones."""
        return self._running

    def _release(self, task: str) -> bool:
        timer = self._reserved.pop(task, None)
        if timer is not None:
            timer.cancel()
        self._update()
        return timer is not None

    def _update(self) -> None:
        if self._running:
            self._idle.clear()
        else:
            self._idle.set()
        if self._running + len(self._reserved) < self.count:
            self._free.set()
        else:
            self._free.clear()
