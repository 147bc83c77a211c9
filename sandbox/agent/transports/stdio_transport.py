"""The lines of standard input and output. A client that is silent or does not read cannot block the server.

A blocked read or write cannot be cancelled. A daemon thread does it, and the process can end while that thread blocks.
(Non-blocking descriptors do not work: the mode belongs to the pipe or terminal, which other processes use too.)
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Generic, TypeVar

from sandbox.agent.transports.long_lines import ENDS_BYTES

MAX_LINE_BYTES = 16 * 1024**2
"""A longer line is cut in its middle to one byte more than this, which marks it as too long."""

_CHUNK_BYTES = 64 * 1024
_INPUT, _OUTPUT, _ERRORS = 0, 1, 2
_ResultT = TypeVar("_ResultT")


class _BlockingWorker(Generic[_ResultT]):
    """A thread for blocking calls, which it runs one after the other."""

    def __init__(self) -> None:
        self._given: SimpleQueue[tuple[Callable[[], _ResultT], Future[_ResultT]]] = SimpleQueue()
        threading.Thread(target=self._serve, daemon=True).start()

    async def run(self, work: Callable[[], _ResultT]) -> _ResultT:
        """Run `work` in the thread and return its result. Cancellation ends the wait; work that has begun continues."""
        outcome: Future[_ResultT] = Future()
        self._given.put((work, outcome))
        return await asyncio.wrap_future(outcome)

    def _serve(self) -> None:
        while True:
            work, outcome = self._given.get()
            if outcome.set_running_or_notify_cancel():
                try:
                    outcome.set_result(work())
                except OSError as error:
                    outcome.set_exception(error)


class StdioTransport:
    """The connection to one client, over two descriptors."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._over = os.eventfd(0, os.EFD_CLOEXEC)
        self._reader, self._writer = _BlockingWorker[bytes](), _BlockingWorker[None]()

    async def lines(self) -> AsyncIterator[bytes]:
        """Lines without their ends, until the client closes; of a line that is too long `MAX_LINE_BYTES` + 1 bytes.

        Raises: `OSError` when the client is gone in another way: a socket reset, a terminal hangup.
        """
        kept = bytearray()
        while chunk := await self._reader.run(partial(os.read, self._reads, _CHUNK_BYTES)):
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                _append_limited(kept, end)
                yield bytes(kept)
                kept.clear()
            _append_limited(kept, rest)
        yield bytes(kept)

    async def write(self, line: bytes) -> None:
        """Write one line. Raises: `OSError` when the client no longer reads."""
        await self._writer.run(partial(_write_all, self._writes, line + b"\n"))

    async def wait_until_disconnected(self) -> None:
        """Wait until the client's reading end is closed; else only a write notices. For a file it waits for ever."""
        poll = select.poll()
        poll.register(self._writes, 0)  # POLLERR and POLLHUP need no request: poll(2)
        poll.register(self._over, select.POLLIN)
        await _BlockingWorker[object]().run(poll.poll)

    def detach(self) -> None:
        """Give up both descriptors: the client sees them closed, even while this process lives.

        They are redirected to /dev/null, not closed: a thread that blocks in one may continue to use its number.
        """
        os.eventfd_write(self._over, 1)  # wakes the poll: while it waits, it keeps its files open
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for ours in (self._reads, self._writes):
            os.dup2(null, ours, inheritable=False)
        os.close(null)


def _append_limited(kept: bytearray, piece: bytes) -> None:
    """Append to the kept bytes without a copy: a long line comes in many pieces."""
    kept += piece
    if len(kept) > MAX_LINE_BYTES:
        del kept[MAX_LINE_BYTES + 1 - ENDS_BYTES : -ENDS_BYTES]


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


@contextmanager
def open_standard_streams() -> Iterator[StdioTransport]:
    """The client at our standard streams. Meanwhile standard input is empty and standard output is standard error.

    So no stray print and no child process can write between the lines.
    """
    reads, writes = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ERRORS + 1) for fd in (_INPUT, _OUTPUT))
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null, _INPUT)
    os.dup2(_ERRORS, _OUTPUT)
    os.close(null)
    wire = StdioTransport(reads, writes)
    try:
        yield wire
    finally:
        os.dup2(reads, _INPUT)
        os.dup2(writes, _OUTPUT)
        wire.detach()
