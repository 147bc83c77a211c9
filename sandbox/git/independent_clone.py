"""A repository of its own, copied from a cache clone: it shares no object, no file and no lock with it.

git's own transport copies the objects as one new pack: `file://` never makes hard links, and no option here names
alternates, a reference or a shared store. No refspec is forced. The source may be repacked, pruned or deleted after.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import quote

from sandbox.git.cache_clones import write_config
from sandbox.git.process import LOCAL_DEADLINE_S, Git, NetworkAccess, ResourceLimits
from sandbox.git.shallow import is_shallow
from sandbox.memory import TRANSFER_BUDGET, TRANSFER_BYTES

FETCH = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--no-auto-maintenance")
_DEADLINE_S = 900.0
_REMOTE_REFS = ("refs/remotes/origin/*:refs/remotes/origin/*", "refs/tags/*:refs/tags/*")


def copy_repository(source: Git, path: Path, oid_length: int, max_bytes: int) -> Git:
    """Create the bare repository `path` with the branches and tags of the remote that `source` has.

    Raises: `quota_exceeded` for a pack above `max_bytes`; FileExistsError. On failure `path` is removed.
    """
    path.mkdir(mode=0o700)
    try:
        git = Git(path, source.executable)
        git.run("init", "--quiet", "--bare", "--template=", "--initial-branch=none", str(path))
        write_config(path, oid_length)
        copy_refs(source, git, _REMOTE_REFS, max_bytes)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return git


def copy_refs(source: Git, target: Git, refspecs: tuple[str, ...], max_bytes: int) -> None:
    """Copy refs with their objects between two repositories of ours. Raises: `quota_exceeded`, `push_rejected`."""
    limits = ResourceLimits(max_bytes, TRANSFER_BYTES // 2)
    depth = ("--update-shallow",) if is_shallow(source.git_dir) else ()
    with TRANSFER_BUDGET.reserve(limits.memory_bytes, LOCAL_DEADLINE_S):
        target.run(
            *FETCH, *depth, "--", f"file://{quote(str(source.git_dir))}", *refspecs,
            network=NetworkAccess("file", config=("fetch.unpackLimit=1",), limits=limits), deadline_s=_DEADLINE_S,
        )  # fmt: skip
