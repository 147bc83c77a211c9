"""The lines of standard input and output, so that neither a client that is silent nor one that does not read holds us.

A read or write that blocks cannot be taken back. A thread does it, and nobody waits for that thread: the process ends
while it blocks. (Non-blocking descriptors are no way: the mode belongs to the pipe or terminal, which others use too.)
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

MAX_LINE_BYTES = 16 * 1024**2
"""A longer line is cut, one byte too long: it is told from others by that."""

_CHUNK_BYTES = 64 * 1024
_INPUT, _OUTPUT, _ERRORS = 0, 1, 2
_ResultT = TypeVar("_ResultT")


class _Hand(Generic[_ResultT]):
    """A thread that blocks in our place, one piece of work after the other."""

    def __init__(self) -> None:
        self._given: SimpleQueue[tuple[Callable[[], _ResultT], Future[_ResultT]]] = SimpleQueue()
        threading.Thread(target=self._serve, daemon=True).start()

    async def do(self, work: Callable[[], _ResultT]) -> _ResultT:
        """The result of the work. Cancelled, it stops to wait; work that has begun goes on."""
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


class Wire:
    """One client at the other end of two descriptors."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._over = os.eventfd(0, os.EFD_CLOEXEC)
        self._reader, self._writer = _Hand[bytes](), _Hand[None]()

    async def lines(self) -> AsyncIterator[bytes]:
        """Lines without their ends, until the client closes; of one that is too long `MAX_LINE_BYTES` + 1.

        Raises: `OSError` when it is gone otherwise: a socket was reset, a terminal hung up.
        """
        kept = bytearray()
        while chunk := await self._reader.do(partial(os.read, self._reads, _CHUNK_BYTES)):
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                _take(kept, end)
                yield bytes(kept)
                kept.clear()
            _take(kept, rest)
        yield bytes(kept)

    async def write(self, line: bytes) -> None:
        """One line. Raises: `OSError` when the client does not read any more."""
        await self._writer.do(partial(_write_all, self._writes, line + b"\n"))

    async def unheard(self) -> None:
        """Wait until nobody can read what we write; else only a write would tell. A file is read for ever."""
        poll = select.poll()
        poll.register(self._writes, 0)  # POLLERR and POLLHUP come unasked: poll(2)
        poll.register(self._over, select.POLLIN)
        await _Hand[object]().do(poll.poll)

    def let_go(self) -> None:
        """Leave both descriptors to the client: it sees that they are closed, also while this process lives.

        They are not closed but lead nowhere, since a thread that blocks in one may go on with its number.
        """
        os.eventfd_write(self._over, 1)  # a poll that waits keeps its files open
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for ours in (self._reads, self._writes):
            os.dup2(nothing, ours, inheritable=False)
        os.close(nothing)


def _take(kept: bytearray, piece: bytes) -> None:
    """No copy of what is kept: a long line comes in many pieces."""
    kept += piece[: MAX_LINE_BYTES + 1 - len(kept)]


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


@contextmanager
def standard_wire() -> Iterator[Wire]:
    """The client at our standard streams, which meanwhile are empty input and standard error.

    So no stray word of ours, and no child, gets between the lines.
    """
    reads, writes = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ERRORS + 1) for fd in (_INPUT, _OUTPUT))
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(nothing, _INPUT)
    os.dup2(_ERRORS, _OUTPUT)
    os.close(nothing)
    wire = Wire(reads, writes)
    try:
        yield wire
    finally:
        os.dup2(reads, _INPUT)
        os.dup2(writes, _OUTPUT)
        wire.let_go()
