"""Use-cases on repositories: clone into the cache, fetch a ref, complete a partial clone, find a profile."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from sandbox.context import describe
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.cache_clones import intact, is_of_another, make_again, open_cache, refresh, resolve_commit
from sandbox.git.entries import TreeEntry
from sandbox.git.local_remotes import enclosing_repository, path_of
from sandbox.git.objects import list_tree, peel, read_blobs, tree_of
from sandbox.git.partial import complete, is_partial, missing_blobs
from sandbox.git.partial import materialize as fetch_remaining
from sandbox.git.process import Git
from sandbox.git.transport import RemoteHead
from sandbox.models import CloneResult, FetchResult, Repository
from sandbox.policy.paths import check_path, path_bytes
from sandbox.profiles import Profile, detect, require_usable
from sandbox.remotes import Remote
from sandbox.store.records import find_repository, list_repositories, near, save_repository
from sandbox.workbench.controller.services import Parts
from sandbox.workbench.controller.startup import at_work
from sandbox.workbench.repositories.commit_facts import Listing, facts_of_listing, list_commit
from sandbox.workspaces.base_facts import BaseFacts
from sandbox.workspaces.pristine import ensure_pristine


def locate(services: Parts, url: str) -> str:
    """The URL of the repository that contains a directory of this host; any other URL unchanged."""
    path = path_of(services.remote(url))
    try:
        found = path and enclosing_repository(path)
    except OSError:
        return url
    return url if found is None or found == path else f"file://{quote(str(found))}"


def clone(services: Parts, url: str, *, partial: bool = False) -> CloneResult:
    """Clone a remote into the cache, or fetch new commits if it is cached, and describe it to the caller."""
    found = register(services, url, partial=partial)
    context = describe(found.head.entries, lambda oids: list(read_blobs(found.git, oids)))
    return CloneResult(repository=found.repository, context=context)


@dataclass(frozen=True)
class Registered:
    """A repository that was just updated, git on its cache clone, and the head of its default branch.

    `remote_head`: the commit of the remote's HEAD, which differs from the head's if HEAD is detached. `facts`: of the
    head's commit.
    """

    repository: Repository
    git: Git
    head: Listing
    checked_out: str
    facts: BaseFacts

    def commit_of(self, ref: str) -> str:
        """The commit of a branch, tag, full commit id or `HEAD`. Raises: `invalid_input`, `not_found`."""
        if ref != "HEAD":
            return resolve_commit(self.git, ref, self.repository.default_branch)
        if self.checked_out == self.head.commit or peel(self.git, self.checked_out, "commit"):
            return self.checked_out
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"HEAD is at {self.checked_out[:12]}, which is on no branch or tag",
            hint="Create a branch or tag for it in the remote, or name another one with --ref.",
        )


def register(services: Parts, url: str, *, partial: bool = False) -> Registered:
    """Clone or fetch into the cache, and save the repository in the registry.

    `partial`: a new clone leaves out file contents that are not on the default branch.
    """
    remote = services.remote(url)
    at_work(services)
    repo_id = id_for(services, remote)
    wanted_since = time.time()
    path = services.home.clone(repo_id)
    with services.home.locked(f"repository-{repo_id}"):
        head = services.authenticated(remote, lambda access: refresh(path, access, wanted_since, partial=partial))
    git = open_cache(path, services.settings.git.executable)
    listing = _default_listing(services, remote, git, head)
    facts = facts_of_listing(services, repo_id, git, listing)
    known = next((r for r in list_repositories(services.home) if r.id == repo_id), None)
    repository = Repository(
        id=repo_id,
        remote_url=remote.url,
        host=remote.host,
        hostname=remote.hostname,
        owner=remote.owner,
        name=remote.name,
        default_branch=head.branch,
        profile=detect(services.profiles, facts.marker).name,
        created_at=known.created_at if known else datetime.now(UTC),
    )
    if repository != known:
        save_repository(services.home, repository)
    return Registered(repository, git, listing, head.commit, facts)


def _default_listing(services: Parts, remote: Remote, git: Git, head: RemoteHead) -> Listing:
    """List the default branch. If that fails because the clone is corrupt, clone again, once."""
    try:
        return list_commit(git, resolve_commit(git, "HEAD", head.branch))
    except SandboxError as error:
        if error.code not in {ErrorCode.NOT_FOUND, ErrorCode.INTERNAL} or intact(git):
            raise
    with services.home.locked(f"repository-{git.git_dir.name}"):
        if not intact(git):  # another process may have repaired it meanwhile
            head = services.authenticated(remote, lambda access: make_again(git.git_dir, access))
    return list_commit(git, resolve_commit(git, "HEAD", head.branch))


def fetch(services: Parts, url: str, ref: str, subpath: str | None) -> FetchResult:
    """Update a ref and return its files, or those of one directory, as an immutable checkout.

    Raises: `not_found` for an unknown ref or directory.
    """
    found = register(services, url)
    repository, git, head = found.repository, found.git, found.head
    commit = found.commit_of(ref)
    name = tree = whole_tree_of(services, found, commit)
    entries = head.entries if commit == head.commit else list_tree(git, tree)
    if subpath is not None and subpath.strip("/"):
        prefix = path_bytes(check_path(subpath.strip("/"))) + b"/"
        entries = [e for e in entries if e.path.startswith(prefix)]
        name = f"{tree}-{hashlib.sha256(prefix).hexdigest()[:12]}"
        if not entries:
            raise SandboxError(
                ErrorCode.NOT_FOUND,
                f"Commit {commit[:12]} has no directory '{subpath[:100]}'",
                hint="Omit the subpath to get all directories.",
            )
    context = describe(entries, lambda oids: list(read_blobs(git, oids)))
    path = pristine(services, repository.id, git, entries, name)
    return FetchResult(**dict(context), local_path=path, commit_sha=commit, files_count=len(entries))


def whole_tree_of(services: Parts, found: Registered, commit: str) -> str:
    """As `whole_tree`, without asking git for the tree of the head."""
    tree = found.head.tree if commit == found.head.commit else tree_of(found.git, commit)
    return _completed(services, found.repository, found.git, tree)


def whole_tree(services: Parts, repository: Repository, git: Git, commit: str) -> str:
    """The tree of a commit; a partial clone fetches its missing blobs. Raises: network errors, `quota_exceeded`."""
    return _completed(services, repository, git, tree_of(git, commit))


def _completed(services: Parts, repository: Repository, git: Git, tree: str) -> str:
    if is_partial(git) and missing_blobs(git, tree):
        remote = services.remote(repository.remote_url)
        with services.home.locked(f"repository-{repository.id}"):
            services.authenticated(remote, lambda access: complete(git, access, tree))
    return tree


def materialize(services: Parts, repo_id: str) -> Repository:
    """Fetch everything that a partial clone lacks. For a complete clone this does not contact the remote."""
    at_work(services)
    repository, git = cache_of(services, repo_id)
    if is_partial(git):
        remote = services.remote(repository.remote_url)
        with services.home.locked(f"repository-{repo_id}"):
            services.authenticated(remote, lambda access: fetch_remaining(git, access))
    return repository


def pristine(services: Parts, repo_id: str, git: Git, entries: Sequence[TreeEntry], name: str) -> Path:
    """The shared checkout of these entries, created if it does not exist."""
    with services.home.locked(f"pristine-{repo_id}"):
        return ensure_pristine(git, entries, services.home.pristine(repo_id, name), services.file_owner)


def cache_of(services: Parts, repo_id: str) -> tuple[Repository, Git]:
    """A registered repository and git on its cache clone. Raises: `not_found`."""
    repository = find_repository(services.home, repo_id)
    git = open_cache(services.home.clone(repo_id), services.settings.git.executable)
    return repository, replace(git, known=services.known(git.git_dir))


def named_profile(services: Parts, name: str) -> Profile:
    """Raises: `not_found` with near matches, `invalid_input` for a profile with a mistake in its file."""
    if name not in services.profiles:
        raise near("profile", name, services.profiles, "`sandbox profiles list` shows all profiles.")
    return require_usable(services.profiles[name])


def id_for(services: Parts, remote: Remote) -> str:
    """The remote's id; with a short hash if another remote, or an unregistered clone of one, has the same id."""
    identity = (remote.hostname, remote.owner, remote.name)
    digest = hashlib.sha256("/".join(identity).encode()).hexdigest()
    plain, hashed = remote.id, f"{remote.id[:190]}-{digest[:8]}"
    known = {r.id: (r.hostname, r.owner, r.name) for r in list_repositories(services.home) if r.id in {plain, hashed}}
    for name in (plain, hashed):
        if known.get(name) == identity:
            return name
    return hashed if plain in known or is_of_another(services.home.clone(plain), remote) else plain
