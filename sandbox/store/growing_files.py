"""Files that another process writes while we read them: logs of checks that run, journals."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

LONGEST_LINES = 16
"""How much longer a line may be than what is read at once."""


def read_from(path: Path, offset: int, most: int) -> bytes:
    """At most so many bytes from an offset; none if the file does not exist."""
    with suppress(OSError), path.open("rb", buffering=0) as file:
        return os.pread(file.fileno(), most, offset)
    return b""


def read_lines_from(path: Path, offset: int, most: int) -> tuple[bytes, int]:
    """Whole lines from an offset, and the place after them; none, and the offset, if there is no whole one yet.

    At most so many bytes, but for one line that is longer. Beyond `LONGEST_LINES` times as many bytes a line is passed
    over in parts: no lines then, and a place within it, so that its rest is read as a line.
    """
    size = most
    while b"\n" not in (chunk := read_from(path, offset, size)) and len(chunk) == size:
        if size >= LONGEST_LINES * most:
            return b"", offset + size
        size *= 2
    whole = chunk[: chunk.rfind(b"\n") + 1]
    return whole, offset + len(whole)


def size_of(path: Path) -> int:
    """In bytes; 0 if the file does not exist."""
    with suppress(OSError):
        return path.stat().st_size
    return 0
