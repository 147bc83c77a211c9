"""Cache clones: bare repositories whose configuration is written by us alone."""

from __future__ import annotations

import shutil
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.objects import check_ref_name, is_object_id, peel, resolve_ref
from sandbox.git.process import Git
from sandbox.git.transport import Access, RemoteHead, fetch, remote_head

_CONFIG = """\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = true
\tlogAllRefUpdates = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
[receive]
\tdenyCurrentBranch = refuse
"""


def open_cache(path: Path) -> Git:
    """git on an existing cache clone. Raises: `not_found`."""
    if not (path / "HEAD").is_file():
        raise SandboxError(ErrorCode.NOT_FOUND, f"The cache clone {path.name} is missing", hint="Clone it again.")
    return Git(path)


def refresh(path: Path, access: Access) -> RemoteHead:
    """Create the cache clone if need be and fetch into it. The caller holds the repository's lock.

    A first clone is made beside and renamed, so a killed one leaves nothing that the next trips on.
    """
    if (path / "HEAD").is_file():
        (path / "config").write_text(_CONFIG)
        return _update(Git(path), access)
    beside = path.with_name(f".{path.name}.incoming")
    shutil.rmtree(beside, ignore_errors=True)
    beside.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        git = Git(beside)
        git.run("init", "--quiet", "--bare", "--template=", "--initial-branch=none", str(beside))
        (beside / "config").write_text(_CONFIG)
        head = _update(git, access)
        beside.rename(path)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return head


def _update(git: Git, access: Access) -> RemoteHead:
    head = remote_head(git, access)
    fetch(git, access)
    return head if head.branch else RemoteHead(_branch_at(git, head.commit), head.commit)


def _branch_at(git: Git, commit: str) -> str:
    """A detached remote HEAD: the branch at that commit, main and master first."""
    out = git.run("for-each-ref", "--format=%(refname:lstrip=3)", f"--points-at={commit}", "refs/remotes/origin/")
    names = out.decode("utf-8", errors="replace").split()
    for name in ("main", "master", *names):
        if name in names:
            return check_ref_name(name)
    raise SandboxError(ErrorCode.NOT_FOUND, "The remote's HEAD is on no branch", hint="Name a branch with --ref.")


def resolve_commit(git: Git, ref: str, default_branch: str) -> str:
    """Commit of a branch, tag, full commit id or `HEAD` (the default branch), as last fetched.

    Raises: `invalid_input` for a revision expression, `not_found` for an unknown name.
    """
    if ref == "HEAD":
        ref = default_branch
    if is_object_id(ref):
        candidates = [ref]
    else:
        name = check_ref_name(ref)
        candidates = [f"refs/remotes/origin/{name}", f"refs/tags/{name}"]
    for candidate in candidates:
        oid = candidate if is_object_id(candidate) else resolve_ref(git, candidate)
        commit = peel(git, oid, "commit") if oid else None
        if commit:
            return commit
    raise SandboxError(
        ErrorCode.NOT_FOUND, f"The remote has no branch, tag or commit '{ref[:100]}'", hint="See the remote's branches."
    )
