"""Directories of one git command in the temporary directory of the host, which all homes and users share.

The process that uses one holds a lock on it (flock), so after a kill anybody can see that it is unused.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sandbox.git.scratch_objects import is_in_use

VIEW_PREFIX = "sandbox-remote-"
ASKPASS_PREFIX = "sandbox-askpass-"
ATTRIBUTES_PREFIX = "sandbox-attributes-"
_MIN_AGE_S = 60.0  # a directory is locked right after it is created


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A new, empty directory. It is deleted on exit."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def find_unused_folders() -> list[Path]:
    """Directories of our user that a killed process left. Names of other users, and links, are left out."""
    place = Path(tempfile.gettempdir())
    found = (path for prefix in (VIEW_PREFIX, ASKPASS_PREFIX, ATTRIBUTES_PREFIX) for path in place.glob(f"{prefix}*"))
    return sorted(path for path in found if _is_old_and_ours(path) and not is_in_use(path))


def _is_old_and_ours(path: Path) -> bool:
    with suppress(OSError):
        info = path.lstat()
        return info.st_uid == os.geteuid() and time.time() - info.st_mtime > _MIN_AGE_S
    return False
