"""Locks of git in a cache clone that a killed process left. No git ever removes them, and each stops those who need it.

A lock is stale if no process has it open and it is older than the longest command of ours that locks refs: git closes
the lock of a ref long before it renames it. A git that is killed while it packs refs leaves `packed-refs.new`, too,
which stops all that delete refs.
"""

from __future__ import annotations

import glob
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.refs import alone_to_remove_locks
from sandbox.git.unfinished_packs import is_not_open

_ResultT = TypeVar("_ResultT")

_PLACES = ("*.lock", "packed-refs.new", "refs/**/*.lock", "objects/**/*.lock")
PACK_REFS_DEADLINE_S = 600.0
_MIN_AGE_S = PACK_REFS_DEADLINE_S + 30.0  # the longest command of ours that locks refs, and a margin


def list_stale_locks(git_dir: Path) -> list[Path]:
    """The stale locks of a clone."""
    found = (name for place in _PLACES for name in glob.glob(place, root_dir=git_dir, recursive=True))  # noqa: PTH207 - `Path.glob` raises an error if a file vanishes
    return [path for path in sorted(git_dir / name for name in found) if _is_stale(path)]


def _is_stale(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > _MIN_AGE_S and is_not_open(path)
    except OSError:
        return False


def run_despite_stale_locks(git_dir: Path, action: Callable[[], _ResultT]) -> _ResultT:
    """Run it; if it ends in a `conflict` and there are stale locks, remove them and run it once more.

    The caller holds the repository's lock.
    """
    try:
        return action()
    except SandboxError as error:
        if error.code is not ErrorCode.CONFLICT or not _remove_stale_locks(git_dir):
            raise
    return action()


def _remove_stale_locks(git_dir: Path) -> bool:
    """Whether there was one."""
    with alone_to_remove_locks(git_dir):
        stale = list_stale_locks(git_dir)
        for path in stale:
            path.unlink(missing_ok=True)
    return bool(stale)
