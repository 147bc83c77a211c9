"""Objects that are not kept: what git writes to look at the working state of a task.

A look builds a tree of the task's files, so git stores their contents. In the cache clone they would stay: no ref leads
to them, and the clone is never pruned. So a look stores them in a directory of its own that is deleted afterwards. An
operation that keeps a state (commit, snapshot) builds the tree again in the clone, from the same bytes in memory.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sandbox.git.process import Git

FOLDER = "looks"
"""Name of the directory in a git directory that holds a directory for each look."""


@contextmanager
def scratch_objects(git: Git) -> Iterator[Git]:
    """git on the same repository with a new, empty store for new objects. The store is deleted on exit.

    It is on the disk of the repository: a temporary directory of the host may be in memory. While it is in use it is
    locked; after a kill `is_in_use` is false for it.
    """
    folder = git.git_dir.absolute() / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    store = Path(tempfile.mkdtemp(prefix="look-", dir=folder))
    lock = os.open(store, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield replace(git, new_objects=store)
    finally:
        shutil.rmtree(store, ignore_errors=True)  # a git that outlives its deadline may still write: `gc` removes it
        os.close(lock)


def is_in_use(store: Path) -> bool:
    """Whether a live process uses this store, or that is unknown. False for a store that does not exist."""
    try:
        fd = os.open(store, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
