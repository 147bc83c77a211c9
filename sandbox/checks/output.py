"""One output stream of a check: spooled to disk, bounded, head and tail kept, the drop counted."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

TAIL_BYTES = 8 * 1024
"""How much of a stream goes into the run record."""


_PENDING_CHUNKS = 256
_LAST_WORDS_S = 5.0

Follow = Callable[[str, bytes], None]
"""Called with ('stdout' or 'stderr', chunk) as output arrives."""


class Follower:
    """Hands output to a listener from a thread of its own, and drops what the listener is too slow for.

    A listener that stalls (a paused terminal) would stop the reading of the container's output, and with it, in Docker
    20.10, the kill at the deadline (THREATS L08). The log keeps what is dropped here.
    """

    def __init__(self, listener: Follow) -> None:
        self._listener = listener
        self._pending: queue.Queue[tuple[str, bytes] | None] = queue.Queue(_PENDING_CHUNKS)
        self._thread = threading.Thread(target=self._hand_over, name="follow", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(queue.Full):
            self._pending.put(None, timeout=_LAST_WORDS_S)
            self._thread.join(timeout=_LAST_WORDS_S)

    def tell(self, name: str, chunk: bytes) -> None:
        """Never waits."""
        with suppress(queue.Full):
            self._pending.put_nowait((name, chunk))

    def _hand_over(self) -> None:
        with suppress(OSError, ValueError):  # the listener's stream is closed
            while (item := self._pending.get()) is not None:
                self._listener(*item)


class Spool:
    """Keeps the first and the last half of `limit` bytes. Memory: at most half the limit, and only past its head."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._head_left = limit - limit // 2
        self._tail_limit = limit // 2
        self._tail = bytearray()  # one buffer: a guest that prints byte by byte costs no object a byte
        self._recent = b""
        self.total_bytes = 0
        self.dropped_bytes = 0

    def __enter__(self) -> Self:
        self._file: IO[bytes] = self._path.open("xb", buffering=0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            if self.dropped_bytes:
                self._file.write(b"\n[... %d bytes dropped here ...]\n" % self.dropped_bytes)
            self._file.write(self._tail)

    def write(self, chunk: bytes) -> None:
        """Take one chunk of guest output."""
        self.total_bytes += len(chunk)
        self._recent = (self._recent + chunk)[-TAIL_BYTES:]
        head, rest = chunk[: self._head_left], chunk[self._head_left :]
        if head:
            self._file.write(head)
            self._head_left -= len(head)
        if rest:
            self._keep(rest)

    @property
    def tail(self) -> bytes:
        """The last `TAIL_BYTES` bytes."""
        return self._recent

    def _keep(self, chunk: bytes) -> None:
        self._tail += chunk
        excess = max(0, len(self._tail) - self._tail_limit)
        self.dropped_bytes += excess
        del self._tail[:excess]
