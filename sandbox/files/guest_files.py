"""Read a file that a guest may have put there, by its name in a folder of ours: whatever it is, without an error."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_guest_file(path: Path, most: int) -> bytes | None:
    """The first `most` bytes of a regular file; None if there is none of this name. A link is not followed; a pipe, a
    device and a directory are not read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        with os.fdopen(fd, "rb", closefd=False) as stream:
            return stream.read(most)
    finally:
        os.close(fd)
