"""Read the lines of a file from its end, in blocks, so that memory and time depend only on what is wanted."""

from __future__ import annotations

import os
from collections.abc import Iterator

BLOCK_BYTES = 64 * 1024


def read_lines_backward(fd: int, max_bytes: int | None = None) -> Iterator[bytes]:
    """The lines of an open file without line breaks, last first, up to the size it has now.

    `max_bytes`: read only so many bytes at the end; a line that begins before them is left out. Raises: OSError.
    """
    end = os.fstat(fd).st_size
    start = 0 if max_bytes is None else max(0, end - max_bytes)
    later: list[bytes] = []  # parts of the line that the last block began within, last part first
    while end > start:
        begin = max(start, end - BLOCK_BYTES)
        first, *others = os.pread(fd, end - begin, begin).split(b"\n")
        if others:
            yield others.pop() + b"".join(reversed(later))
            yield from reversed(others)
            later = []
        later.append(first)
        end = begin
    if start == 0:
        yield b"".join(reversed(later))
