"""A clone of what this process has cloned before is a copy of the clone made then: six processes of git less.

For fixtures whose test begins after the clone: of a remote in a folder, made by plain git. A copy has what a clone has
(`tests/unit/devtools/test_copied_clones.py`). Tests of a clone, and attacks on one, ask for no copy.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.git import cache_clones, set_aside, transport
from sandbox.git.process import Git
from sandbox.git.transport import RemoteAccess, RemoteHead

_create = cache_clones._create_clone
_made: dict[tuple[object, ...], tuple[Path, RemoteHead]] = {}
"""By the program and the refs: they name all that is reached."""
_copying = threading.local()
"""Of the threads in the block: it replaces a function of the whole process."""


@contextmanager
def copied_clones() -> Iterator[None]:
    """The block clones remotes with the same refs once. Other threads clone as ever meanwhile."""
    _copying.is_on = True
    cache_clones._create_clone = _copy_or_create
    try:
        yield
    finally:
        cache_clones._create_clone = _create
        _copying.is_on = False


def _copy_or_create(path: Path, access: RemoteAccess, *, partial: bool) -> RemoteHead:
    git = Git(path, access.git)
    is_repair = path.exists() or set_aside.list_set_aside(path)
    is_on = getattr(_copying, "is_on", False) and not is_repair and not partial
    remote = transport.read_local_refs(git, access) if is_on else None
    if remote is None:
        return _create(path, access, partial=partial)
    key = (access.git, remote.head, *sorted(remote.refs.items()))
    if key not in _made:
        head = _create(path, access, partial=partial)
        kept = Path(tempfile.mkdtemp(prefix="copied-clones-"))
        atexit.register(shutil.rmtree, kept, ignore_errors=True)
        shutil.copytree(path, kept / "clone", symlinks=True)
        _made[key] = (kept / "clone", head)
        return head
    template, head = _made[key]
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    shutil.copytree(template, path, symlinks=True)
    return cache_clones._record_fetch(git, access, time.time(), head)
