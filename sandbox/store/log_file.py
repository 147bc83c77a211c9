"""Read lines of one log by number, with their offsets, without holding more than requested in memory.

A line ends only at LF, as for `git grep`. The log of a running check grows: only the bytes that existed at the start
are read, so that line numbers, offsets and content are consistent.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from dataclasses import dataclass
from typing import IO

_CHUNK = 1 << 16


@dataclass(frozen=True)
class LogPiece:
    """Lines from number `first` on, without LF. `offset`: of the first byte; `end`: after the last byte.

    The first line of a piece that was read backwards, or the last line of one read forwards, may be partial.
    """

    first: int
    lines: tuple[bytes, ...]
    offset: int
    end: int


class LogFile:
    """A log of `size` bytes and `lines` lines; the last line may lack its LF. Reads it once to index the lines."""

    def __init__(self, file: IO[bytes]) -> None:
        self._fd = file.fileno()
        self._counts = array("Q", [0])  # of LFs before each chunk
        self.size = os.fstat(self._fd).st_size
        last = b""
        for offset in range(0, self.size, _CHUNK):
            last = self.read(offset, min(_CHUNK, self.size - offset))
            self._counts.append(self._counts[-1] + last.count(b"\n"))
        self.lines = self._counts[-1] + (not last.endswith(b"\n") and last != b"")

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes at an offset; fewer at the end."""
        return os.pread(self._fd, size, offset)

    def offset_of_line(self, line: int) -> int:
        """Offset of a line's first byte; the log's size if there is no such line."""
        before = line - 1  # LFs
        if before <= 0:
            return 0
        chunk = bisect_left(self._counts, before) - 1
        if chunk + 1 >= len(self._counts):
            return self.size
        content, at = self.read(chunk * _CHUNK, _CHUNK), -1
        for _ in range(before - self._counts[chunk]):
            at = content.index(b"\n", at + 1)
        return chunk * _CHUNK + at + 1

    def read_forward(self, first: int, last: int, max_bytes: int) -> LogPiece:
        """Lines `first` to `last`: as many whole lines as fit in `max_bytes`, at least a part of the first."""
        start, end = self.offset_of_line(first), self.offset_of_line(last + 1)
        content = self.read(start, min(max_bytes, end - start))
        if start + len(content) < end and (whole := content.rfind(b"\n") + 1):
            content = content[:whole]
        return LogPiece(first, _split_lines(content), start, start + len(content))

    def read_backward(self, last: int, max_bytes: int) -> LogPiece:
        """The lines up to `last`: as many whole lines as fit in `max_bytes`, at least the end of `last`."""
        end = self.offset_of_line(last + 1)
        start = max(0, end - max_bytes)
        content = self.read(start, end - start)
        if start and self.read(start - 1, 1) != b"\n" and (whole := content.find(b"\n", 0, -1) + 1):
            start, content = start + whole, content[whole:]
        lines = _split_lines(content)
        return LogPiece(last + 1 - len(lines), lines, start, end)


def _split_lines(content: bytes) -> tuple[bytes, ...]:
    return tuple(content.removesuffix(b"\n").split(b"\n")) if content else ()
