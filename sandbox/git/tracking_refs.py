"""Remote-tracking refs of a checkout on this host, such as `origin/main`: fetched when they are asked for.

A checkout of a CI has hardly any branch of its own. What its job compares with, or names by its id, is below
`refs/remotes`, which a cache clone does not follow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.local.local_remotes import local_path_of
from sandbox.git.local.view import read_refs_of_repository
from sandbox.git.partial import is_partial
from sandbox.git.process import Git
from sandbox.git.pull_request_refs import REQUEST_REFS
from sandbox.git.refs import require_ref_name, resolve_ref_to_commit
from sandbox.git.shallow import CI_HINT
from sandbox.git.transport import MAX_REFS, RemoteAccess, fetch_ref, fetch_tracking_refs
from sandbox.lazy_pattern import lazy_pattern

_PLACE = "refs/remotes/"
_ALL = f"{REQUEST_REFS}tracking"
_ONE = f"{REQUEST_REFS}tracked/"
_MAX_NAMES_SHOWN = 12
_ID = lazy_pattern(r"^[0-9a-f]{7,64}$")


def fetch_tracked_commit(
    git: Git, access: RemoteAccess, ref: str, resolve: Callable[[], str], unknown: SandboxError
) -> str:
    """The commit of a remote-tracking branch (`origin/main`) of a local repository, or of a commit id that one leads
    to. The caller holds the repository's lock. `resolve`: finds the id once all of them are fetched. `unknown`: why it
    was not found before.

    Raises: `not_found`, with what can be named; as `fetch`.
    """
    path = local_path_of(access.remote)
    if path is None:
        raise ValueError("only a repository of this host has tracking refs")
    seeing = replace(access, shown=("refs/remotes",))
    tracked = read_refs_of_repository(git, path, MAX_REFS, seeing.shown).values
    name = f"{_PLACE}{require_ref_name(ref)}"
    if name in tracked:
        target = f"{_ONE}{hashlib.sha256(ref.encode()).hexdigest()[:16]}"
        fetch_ref(git, seeing, name, target, partial=is_partial(git))
        if commit := resolve_ref_to_commit(git, target):
            return commit
    if tracked and _ID.fullmatch(ref):
        fetch_tracking_refs(git, seeing, _ALL, partial=is_partial(git))
        try:
            return resolve()
        except SandboxError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
    raise _unknown_ref_error(ref, path, tracked, unknown)


def _unknown_ref_error(ref: str, path: Path, tracked: Mapping[str, str], unknown: SandboxError) -> SandboxError:
    names = sorted(name.removeprefix(_PLACE) for name in tracked)
    meant = next((name for name in names if name.partition("/")[2] == ref), None)
    more = ", ..." if len(names) > _MAX_NAMES_SHOWN else ""
    return SandboxError(
        ErrorCode.NOT_FOUND,
        f"The checkout {path} has no branch, tag or commit '{ref[:100]}'",
        details=f"{unknown.details}\nBranches of its remotes: {', '.join(names[:_MAX_NAMES_SHOWN]) or '(none)'}{more}",
        hint=f"The branch of its remote is written {meant}." if meant else f"Fetch it into the checkout. {CI_HINT}",
    )
