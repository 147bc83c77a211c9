"""One output stream of a check: spooled to disk with a size limit. Head and tail are kept, dropped bytes counted."""

from __future__ import annotations

import os
import queue
import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Self

from sandbox.lazy_pattern import lazy_pattern
from sandbox.listener import ListenerThread
from sandbox.text import decode_for_display

TAIL_BYTES = 8 * 1024
"""How much of a stream goes into the run record."""

DROP_MARK = b"\n[... %d bytes dropped here ...]\n"
"""The mark between head and tail of a log."""

_MARK = lazy_pattern(re.escape(DROP_MARK).replace(b"%d", rb"(\d{1,20})"))
MARK_BYTES = len(DROP_MARK) + 20
CONTINUATION = bytes(range(0x80, 0xC0))
"""Continuation bytes of a UTF-8 character: all after its first."""

_RECENT_BYTES = 8 * TAIL_BYTES
_COPY_BYTES = 1 << 16
_PENDING_CHUNKS = 256
_LAST_WORDS_S = 5.0


def head_bytes(limit: int) -> int:
    """Return how many of `limit` bytes are for the beginning of a stream."""
    return limit - limit // 2


def read_drop_mark(content: bytes) -> tuple[int, int] | None:
    """If this part of a log begins with a mark, return the number of dropped bytes and the length of the mark."""
    found = _MARK.match(content)
    return (int(found[1]), len(found[0])) if found else None


OutputListener = Callable[[str, bytes], None]
"""Called with ('stdout' or 'stderr', chunk) as output arrives."""


class OutputForwarder:
    """Passes output to a listener from a separate thread, and drops output when the listener is too slow.

    Otherwise a listener that stalls (a paused terminal) or raises would stop the reading of the guest's output, and so
    the check (THREATS L08). The listener receives the number of bytes it missed; the log keeps them.
    """

    def __init__(self, listener: OutputListener) -> None:
        self._missed: Counter[str] = Counter()
        self._thread = ListenerThread[tuple[str, bytes]]("follow", lambda item: listener(*item), _PENDING_CHUNKS)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ends_at = time.monotonic() + _LAST_WORDS_S
        with suppress(queue.Full):
            for name in [name for name, missed in self._missed.items() if missed]:
                self._put(name, b"", _LAST_WORDS_S)
        self._thread.end(max(0.0, ends_at - time.monotonic()))

    def forward(self, name: str, chunk: bytes) -> None:
        """Queue a chunk for the listener. Never waits, never raises."""
        try:
            self._put(name, chunk, 0)
        except queue.Full:
            self._missed[name] += len(chunk)

    def _put(self, name: str, chunk: bytes, timeout_s: float) -> None:
        missed = self._missed[name]
        content = DROP_MARK % missed + chunk if missed else chunk
        self._thread.put((name, content), timeout_s)
        self._missed[name] = 0


class Spool:
    """Stores the first and the last bytes of a stream in a file unchanged, half of `limit` each.

    Bytes after the first half go to an unnamed file that is used as a ring, so memory does not depend on the limit.
    Bytes that cannot be written count as dropped: a full disk loses output, never a verdict.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._head_limit = head_bytes(limit)
        self._tail_limit = limit // 2
        self._head_bytes = 0
        self._past_head = 0
        self._uncopied = 0
        self._failed = False
        self._ring: IO[bytes] | None = None
        self._recent = bytearray()
        self.total_bytes = 0

    def __enter__(self) -> Self:
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._file: IO[bytes] = os.fdopen(fd, "wb", buffering=0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file, self._ring or nullcontext():
            dropped = self.dropped_bytes
            self._uncopied = self._kept_in_ring
            with suppress(OSError):
                if dropped:
                    _write_all(self._file, DROP_MARK % dropped)
                self._append_ring()

    def write(self, chunk: bytes) -> None:
        """Store one chunk of guest output. A write error is not raised: see `dropped_bytes`."""
        self.total_bytes += len(chunk)
        self._remember(chunk)
        if self._failed:
            return
        try:
            self._store(chunk)
        except OSError:
            self._failed = True

    @property
    def tail(self) -> bytes:
        """The last `TAIL_BYTES` bytes."""
        return bytes(self._recent[-TAIL_BYTES:])

    @property
    def tail_text(self) -> str:
        """The same as text that is safe to show, from the first complete character."""
        return decode_for_display(self._whole_tail)

    @property
    def tail_from_byte(self) -> int:
        """Offset in the stream at which `tail_text` begins."""
        return self.total_bytes - len(self._whole_tail)

    @property
    def _whole_tail(self) -> bytes:
        tail = self.tail
        return tail.lstrip(CONTINUATION) if len(tail) < self.total_bytes else tail

    @property
    def dropped_bytes(self) -> int:
        """How many bytes of the stream are missing in the file, once it is closed."""
        return self.total_bytes - self._head_bytes - self._kept_in_ring + self._uncopied

    @property
    def _kept_in_ring(self) -> int:
        return 0 if self._failed else min(self._past_head, self._tail_limit)

    def _remember(self, chunk: bytes) -> None:
        self._recent += chunk[-TAIL_BYTES:]
        if len(self._recent) > _RECENT_BYTES:  # rarely, so that output byte by byte does not copy kilobytes each time
            del self._recent[:-TAIL_BYTES]

    def _store(self, chunk: bytes) -> None:
        room = self._head_limit - self._head_bytes
        if room:
            _write_all(self._file, chunk[:room])
            self._head_bytes += min(room, len(chunk))
        if len(chunk) > room:
            self._store_in_ring(chunk[room:])

    def _store_in_ring(self, chunk: bytes) -> None:
        self._past_head += len(chunk)
        if not self._tail_limit:
            return
        if self._ring is None:
            self._ring = TemporaryFile(dir=self._path.parent, buffering=0)  # noqa: SIM115 - closed with the log
        chunk = chunk[-self._tail_limit :]
        at = (self._past_head - len(chunk)) % self._tail_limit
        for start, piece in ((at, chunk[: self._tail_limit - at]), (0, chunk[self._tail_limit - at :])):
            self._ring.seek(start)
            _write_all(self._ring, piece)

    def _append_ring(self) -> None:
        """Append the ring, oldest bytes first; if it wrapped around, the oldest bytes are those after `at`."""
        if self._ring is None or self._failed:
            return
        at = self._past_head % self._tail_limit if self._past_head > self._tail_limit else 0
        for start, end in ((at, self._kept_in_ring), (0, at)):
            self._ring.seek(start)
            while start < end and (piece := self._ring.read(min(_COPY_BYTES, end - start))):
                _write_all(self._file, piece)
                self._uncopied -= len(piece)
                start += len(piece)


def _write_all(file: IO[bytes], content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]
