"""Files that another process writes while we read them: logs of checks that run, journals."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def read_from(path: Path, offset: int, most: int) -> bytes:
    """At most so many bytes from an offset; none if the file does not exist."""
    with suppress(OSError), path.open("rb", buffering=0) as file:
        return os.pread(file.fileno(), most, offset)
    return b""


def size_of(path: Path) -> int:
    """In bytes; 0 if the file does not exist."""
    with suppress(OSError):
        return path.stat().st_size
    return 0
