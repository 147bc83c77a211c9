"""Use-cases on repositories: clone into the cache, list, and tell what kind of project a commit is."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime

from sandbox.context import describe
from sandbox.git.cache import open_cache, refresh, resolve_commit
from sandbox.git.objects import SYMLINK, TreeEntry, list_tree, read_blobs, tree_of
from sandbox.git.process import Git
from sandbox.models import CloneResult, Repository
from sandbox.policy.paths import path_bytes
from sandbox.profiles import MARKER_BYTES, Profile, detect
from sandbox.remotes import Remote
from sandbox.store.records import find_repository, list_repositories, near, save_repository
from sandbox.workbench.parts import Parts


def clone(parts: Parts, url: str) -> CloneResult:
    """Clone a remote into the cache, or fetch what is new when it is there, and orient the caller."""
    repository, git, entries = register(parts, url)
    return CloneResult(repository=repository, context=describe(entries, lambda oids: list(read_blobs(git, oids))))


def register(parts: Parts, url: str) -> tuple[Repository, Git, list[TreeEntry]]:
    """Bring the cache up to date and the registry with it. Returns also the leaves of the default branch's tree."""
    remote = parts.remote(url)
    repo_id = _id_for(parts, remote)
    with parts.home.locked(f"repository-{repo_id}"):
        head = refresh(parts.home.clone(repo_id), parts.access(remote))
        git = open_cache(parts.home.clone(repo_id))
        entries = list_tree(git, tree_of(git, resolve_commit(git, "HEAD", head.branch)))
        known = next((r for r in list_repositories(parts.home) if r.id == repo_id), None)
        repository = Repository(
            id=repo_id,
            remote_url=remote.url,
            host=remote.host,
            hostname=remote.hostname,
            owner=remote.owner,
            name=remote.name,
            default_branch=head.branch,
            profile=profile_at(parts, git, entries).name,
            created_at=known.created_at if known else datetime.now(UTC),
        )
        save_repository(parts.home, repository)
    return repository, git, entries


def cache_of(parts: Parts, repo_id: str) -> tuple[Repository, Git]:
    """A registered repository and git on its cache clone. Raises: `not_found`."""
    repository = find_repository(parts.home, repo_id)
    return repository, open_cache(parts.home.clone(repo_id))


def profile_at(parts: Parts, git: Git, entries: Sequence[TreeEntry]) -> Profile:
    """The profile whose markers these files of a commit carry."""
    by_path = {e.path: e for e in entries if e.mode != SYMLINK and e.size is not None and e.size <= MARKER_BYTES}

    def read(path: str) -> bytes | None:
        entry = by_path.get(path_bytes(path))
        return None if entry is None else next(iter(read_blobs(git, [entry.oid])))

    return detect(parts.profiles, read)


def named_profile(parts: Parts, name: str) -> Profile:
    """Raises: `not_found` with near matches."""
    if name not in parts.profiles:
        raise near("profile", name, parts.profiles, "`sandbox profiles list` shows all profiles.")
    return parts.profiles[name]


def _id_for(parts: Parts, remote: Remote) -> str:
    """The remote's id; with a short hash when another remote's id reads the same."""
    for known in list_repositories(parts.home):
        if known.id == remote.id and (known.hostname, known.owner, known.name) != (
            remote.hostname,
            remote.owner,
            remote.name,
        ):
            digest = hashlib.sha256(f"{remote.hostname}/{remote.owner}/{remote.name}".encode()).hexdigest()
            return f"{remote.id[:190]}-{digest[:8]}"
    return remote.id
