"""Use-cases on repositories: clone into the cache, fetch a ref, complete a partial clone, find a profile."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.checkout import remove_tree
from sandbox.git.cache_clones import (
    is_clone_of_other_remote,
    is_intact,
    open_cache,
    refresh,
    replace_corrupt_clone,
    resolve_commit,
)
from sandbox.git.entries import TreeEntry
from sandbox.git.local.local_remotes import find_local_problem, local_path_of
from sandbox.git.objects import peel, tree_of
from sandbox.git.partial import fetch_missing_blobs, is_partial, list_missing_blobs
from sandbox.git.partial import materialize as fetch_remaining
from sandbox.git.process import Git
from sandbox.git.pull_request_refs import PullRequestRef, fetch_pull_request, parse_pull_request_ref
from sandbox.git.refs import resolve_ref
from sandbox.git.transport import RemoteAccess, RemoteHead, fetch_blobs
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.models import ChosenSettings, CloneResult, FetchResult, Repository
from sandbox.policy.paths import parse_repo_path, path_bytes
from sandbox.remotes import Remote
from sandbox.store.home import Home
from sandbox.store.records import list_repositories, save_repository
from sandbox.workbench.controller.disk_admission import Writer
from sandbox.workbench.controller.disk_demands import demand_of_checkout
from sandbox.workbench.controller.remote_access import RemoteConnector
from sandbox.workbench.controller.repository_names import find_repository_url
from sandbox.workbench.controller.services import Services
from sandbox.workbench.controller.startup import ensure_recovered
from sandbox.workbench.repositories.commit_facts import (
    CommitListing,
    list_commit,
    load_facts_of_listing,
    load_stored_facts,
    profile_from_facts,
)
from sandbox.workbench.repositories.commit_settings import complete_settings
from sandbox.workbench.repositories.repository_settings import choose_profile, read_settings
from sandbox.workbench.repositories.seen_facts import advise
from sandbox.workbench.repositories.tree_description import describe_tree
from sandbox.workspaces.base_facts import BaseFacts
from sandbox.workspaces.pristine import ensure_pristine

if TYPE_CHECKING:
    from sandbox.git import tracking_refs
else:  # loaded for a ref that is unknown (docs/adr/0080)
    tracking_refs = LazyModule("sandbox.git.tracking_refs")

_ResultT = TypeVar("_ResultT")


def locate(remotes: RemoteConnector, url: str) -> str:
    """The URL of the repository that contains a directory of this host; any other URL unchanged.

    Raises: `invalid_input` for a path of this host that is no repository, nor in one.
    """
    found = find_repository_url(remotes, url)
    path = local_path_of(remotes.parse(found))
    problem = None
    with suppress(OSError):  # the clone reports a directory that cannot be read
        problem = path and find_local_problem(path)
    if problem:
        raise SandboxError(ErrorCode.INVALID_INPUT, problem[0], hint=problem[1])
    return found


def clone(services: Services, url: str, *, partial: bool = False) -> CloneResult:
    """Clone a remote into the cache, or fetch new commits if it is cached, and describe it to the caller."""
    updated = update_cache(services, url, partial=partial)
    found = updated.default_head
    context = describe_tree(
        services, updated.repository.id, updated.git, found.tree, lambda: found.entries, updated.facts
    )
    profile = profile_from_facts(services, updated.repository.id, updated.facts)
    advice = advise(services, updated.repository.id, updated.facts, profile)
    protocol = services.remotes.find_other_protocol(services.remotes.parse(url))
    return CloneResult(repository=updated.repository, context=context, advice=advice, protocol=protocol)


@dataclass(frozen=True)
class UpdatedRepository:
    """A repository that was just updated, git on its cache clone, and the head of its default branch.

    `remote_head`: the commit of the remote's HEAD, which differs from the head's if HEAD is detached. `facts`: of the
    head's commit.
    """

    repository: Repository
    git: Git
    default_head: CommitListing
    remote_head: str
    facts: BaseFacts

    def find_commit(self, ref: str) -> str:
        """The commit of a branch, tag, commit id or `HEAD`, as fetched. Raises: `invalid_input`, `not_found`."""
        if ref != "HEAD":
            return resolve_commit(self.git, ref, self.repository.default_branch)
        if self.remote_head == self.default_head.commit or peel(self.git, self.remote_head, "commit"):
            return self.remote_head
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"HEAD is at {self.remote_head[:12]}, which is on no branch or tag",
            hint="Create a branch or tag for it in the remote, or name another one with --ref.",
        )


def update_cache(
    services: Services, url: str, *, partial: bool = False, only_if_changed: bool = False, only_stored: bool = False
) -> UpdatedRepository:
    """Clone or fetch into the cache, and save the repository in the registry.

    `partial`: a new clone leaves out file contents that are not on the default branch. `only_if_changed`: see
    `refresh`. `only_stored`: do not read a commit whose facts and checkout are stored, so that damage to the clone is
    not noticed.
    """
    remote = services.remotes.parse(url)
    ensure_recovered(services)
    repo_id = choose_repo_id(services.home, remote)
    wanted_since = time.time()
    path = services.home.clone(repo_id)

    def transfer(access: RemoteAccess) -> RemoteHead:
        return refresh(path, access, wanted_since, partial=partial, only_if_changed=only_if_changed)

    with services.home.locked(f"repository-{repo_id}"):
        first = _FirstClone(services.home, repo_id)
        try:
            head = run_transfer(services, remote, transfer)
        except SandboxError:
            first.remove()
            raise
    try:
        git = open_cache(path, services.settings.git.executable)
        stored = _find_stored_head(services, git, head) if only_stored else None
        listing, facts = stored or _read_head(services, remote, git, head)
    except SandboxError:
        with services.home.locked(f"repository-{repo_id}"):
            first.remove()  # another command that shares it reads the same, and fails, too
        raise
    known = next((r for r in list_repositories(services.home) if r.id == repo_id), None)
    chosen = read_settings(services.home, services.policies, repo_id)
    chosen = complete_settings(services.home, services.policies, repo_id, facts, chosen)
    profile = choose_profile(services.policies, facts, chosen)
    repository = Repository(
        id=repo_id,
        remote_url=remote.url,
        host=remote.host,
        hostname=remote.hostname,
        owner=remote.owner,
        name=remote.name,
        default_branch=head.branch,
        profile=profile.name,
        subpath=profile.folder,
        created_at=known.created_at if known else datetime.now(UTC),
        settings=known.settings if known else ChosenSettings(),
    )
    if repository != known:
        repository = save_repository(services.home, repository)
    return UpdatedRepository(repository, listing.git, listing, head.commit, facts)


class _FirstClone:
    """What the first clone of a repository makes. No repository is registered for one that fails, and a repeated
    command would leave another one. Made and used by who holds the repository's lock.
    """

    def __init__(self, home: Home, repo_id: str) -> None:
        self._home, self._repo_id = home, repo_id
        self._before = {path.name for path in self._list()}

    def remove(self) -> None:
        """Remove the clone, with what a repair set aside, unless it was there before or is registered by now."""
        known = {repository.id for repository in list_repositories(self._home)}
        if self._repo_id not in self._before | known:
            for path in self._list():
                if path.name not in self._before:
                    remove_tree(path)

    def _list(self) -> list[Path]:
        clone = self._home.clone(self._repo_id)
        return [path for path in (clone, *clone.parent.glob(f".{self._repo_id}.corrupt-*")) if path.is_dir()]


def _find_stored_head(services: Services, git: Git, head: RemoteHead) -> tuple[CommitListing, BaseFacts] | None:
    """The default branch and the facts of its commit, if they and its checkout are stored; git is not asked."""
    commit, repo_id = head.branch_commit, git.git_dir.name
    facts = load_stored_facts(services.home, services.policies, repo_id, commit) if commit else None
    if facts is None or not services.home.pristine(repo_id, facts.tree).is_dir():
        return None
    git.cache.trees.store({commit: facts.tree})
    return CommitListing(git, commit, facts.tree), facts


def _read_head(services: Services, remote: Remote, git: Git, head: RemoteHead) -> tuple[CommitListing, BaseFacts]:
    listing = _list_default_branch(services, remote, git, head)
    return listing, load_facts_of_listing(services.home, services.policies, git.git_dir.name, listing)


def run_transfer(services: Services, remote: Remote, action: Callable[[RemoteAccess], _ResultT]) -> _ResultT:
    """Run `action` with access to a remote; it may fetch as much as the disk has room for.

    Servers do not say how much they will send, so the kernel's limit on the pack is what is free. Raises:
    `quota_exceeded`.
    """
    with services.disk.admit_transfer(services.settings.remotes.max_fetch_bytes) as limit:
        return services.remotes.run_with_access(remote, lambda access: action(replace(access, max_fetch_bytes=limit)))


def _list_default_branch(services: Services, remote: Remote, git: Git, head: RemoteHead) -> CommitListing:
    """List the default branch. If that fails because the clone is corrupt, clone again, once."""
    memory_bytes = services.settings.remotes.max_fetch_memory_bytes
    try:
        found = list_commit(git, resolve_commit(git, "HEAD", head.branch))
        if not services.home.pristine(git.git_dir.name, found.tree).is_dir():  # else it was listed, and read
            _ = found.entries
        return found
    except SandboxError as error:
        if error.code not in {ErrorCode.NOT_FOUND, ErrorCode.INTERNAL} or is_intact(git, memory_bytes):
            raise
    with services.home.locked(f"repository-{git.git_dir.name}"):
        if not is_intact(git, memory_bytes):  # another process may have repaired it meanwhile
            head = run_transfer(services, remote, lambda access: replace_corrupt_clone(git.git_dir, access))
    git = open_cache(git.git_dir, git.executable)
    return list_commit(git, resolve_commit(git, "HEAD", head.branch))


def fetch(services: Services, url: str, ref: str, subpath: str | None) -> FetchResult:
    """Update a ref and return its files, or those of one directory, as an immutable checkout.

    A tree that was fetched before is not listed again. Threads that ask for the same at the same time share a fetch
    that begins after the last of them asked. Raises: `not_found` for an unknown ref or directory.
    """
    return services.fetches.run((url, ref, subpath), lambda: _fetch(services, url, ref, subpath))


def _fetch(services: Services, url: str, ref: str, subpath: str | None) -> FetchResult:
    found = update_cache(services, url, only_if_changed=True, only_stored=True)
    repository, git, head = found.repository, found.git, found.default_head
    commit = fetch_commit(services, found, ref)
    tree = whole_tree_of(services, found, commit)
    if commit == head.commit:
        listing, facts = head, found.facts
    else:
        listing = list_commit(git, commit)
        facts = load_facts_of_listing(services.home, services.policies, repository.id, listing)
    folder = (subpath or "").strip("/")
    prefix = path_bytes(parse_repo_path(folder)) + b"/" if folder else b""
    name = f"{tree}-{hashlib.sha256(prefix).hexdigest()[:12]}" if folder else tree

    def list_entries() -> list[TreeEntry]:
        entries = [entry for entry in listing.entries if entry.path.startswith(prefix)]
        if not entries and folder:
            raise SandboxError(
                ErrorCode.NOT_FOUND,
                f"Commit {commit[:12]} has no directory '{folder[:100]}'",
                hint="Omit the subpath to get all directories.",
            )
        return entries

    context = describe_tree(services, repository.id, git, name, list_entries, facts)
    path = ensure_pristine_checkout(services, repository.id, git, list_entries, name)
    return FetchResult(
        **dict(context), repo_id=repository.id, local_path=path, commit_sha=commit, files_count=context.tree_total
    )


def fetch_commit(services: Services, updated: UpdatedRepository, ref: str) -> str:
    """As `UpdatedRepository.find_commit`; a pull request (`pr/7`) is fetched first. Raises: also network errors."""
    wanted = find_pull_request_ref(updated.git, ref)
    if wanted:
        return fetch_request(services, updated.repository, updated.git, wanted)
    return find_or_fetch_commit(services, updated, ref)


def find_or_fetch_commit(services: Services, updated: UpdatedRepository, ref: str) -> str:
    """As `UpdatedRepository.find_commit`; for a directory also a remote-tracking branch, or a commit that one leads to.
    These are fetched. Raises: as `fetch_tracked_commit`.
    """
    remote = services.remotes.parse(updated.repository.remote_url)
    try:
        return updated.find_commit(ref)
    except SandboxError as error:
        if error.code is not ErrorCode.NOT_FOUND or ref == "HEAD" or local_path_of(remote) is None:
            raise
        unknown = error

    def transfer(access: RemoteAccess) -> str:
        return tracking_refs.fetch_tracked_commit(updated.git, access, ref, lambda: updated.find_commit(ref), unknown)

    with services.home.locked(f"repository-{updated.repository.id}"):
        return run_transfer(services, remote, transfer)


def find_pull_request_ref(git: Git, ref: str) -> PullRequestRef | None:
    """The pull request that a ref names. A branch or tag of that name goes first."""
    wanted = parse_pull_request_ref(ref)
    named = wanted and any(resolve_ref(git, f"{place}{ref}") for place in ("refs/remotes/origin/", "refs/tags/"))
    return None if named else wanted


def fetch_request(services: Services, repository: Repository, git: Git, wanted: PullRequestRef) -> str:
    """Fetch a pull request of the remote; returns its commit. Raises: as `fetch_pull_request`."""
    remote = services.remotes.parse(repository.remote_url)
    with services.home.locked(f"repository-{repository.id}"):
        return run_transfer(services, remote, lambda access: fetch_pull_request(git, access, wanted))


def whole_tree_of(services: Services, found: UpdatedRepository, commit: str) -> str:
    """As `fetch_whole_tree`, without asking git for the tree of the head."""
    tree = found.default_head.tree if commit == found.default_head.commit else tree_of(found.git, commit)
    return _fetch_missing_blobs(services, found.repository, found.git, tree)


def fetch_whole_tree(services: Services, repository: Repository, git: Git, commit: str) -> str:
    """The tree of a commit; a partial clone fetches its missing blobs. Raises: network errors, `quota_exceeded`."""
    return _fetch_missing_blobs(services, repository, git, tree_of(git, commit))


def _fetch_missing_blobs(services: Services, repository: Repository, git: Git, tree: str) -> str:
    if is_partial(git) and list_missing_blobs(git, tree):
        remote = services.remotes.parse(repository.remote_url)
        with services.home.locked(f"repository-{repository.id}"):
            run_transfer(services, remote, lambda access: fetch_missing_blobs(git, access, tree))
    return tree


def fetch_objects(services: Services, repository: Repository, git: Git, oids: Sequence[str]) -> None:
    """Fetch exactly these objects, that a partial clone lacks. Raises: network errors, `quota_exceeded`."""
    remote = services.remotes.parse(repository.remote_url)
    with services.home.locked(f"repository-{repository.id}"):
        run_transfer(services, remote, lambda access: fetch_blobs(git, access, oids))


def materialize(services: Services, repo_id: str) -> Repository:
    """Fetch everything that a partial clone lacks. For a complete clone this does not contact the remote."""
    ensure_recovered(services)
    repository, git = services.repositories.open(repo_id)
    if is_partial(git):
        remote = services.remotes.parse(repository.remote_url)
        with services.home.locked(f"repository-{repo_id}"):
            run_transfer(services, remote, lambda access: fetch_remaining(git, access))
    return repository


def ensure_pristine_checkout(
    services: Services, repo_id: str, git: Git, list_entries: Callable[[], Sequence[TreeEntry]], name: str
) -> Path:
    """The shared checkout of these entries; if it does not exist, they are listed and it is created.

    Raises: `quota_exceeded` for a full disk.
    """
    path = services.home.pristine(repo_id, name)
    with services.home.locked(f"pristine-{repo_id}"), ExitStack() as admitted:
        entries = [] if path.is_dir() else list_entries()
        if entries:
            admitted.enter_context(services.disk.admit(Writer.CHECKOUT, demand_of_checkout(entries)))
        return ensure_pristine(git, entries, path, services.policies.pristine_owner)


def choose_repo_id(home: Home, remote: Remote) -> str:
    """The remote's id; with a short hash if another remote, or an unregistered clone of one, has the same id."""
    identity = (remote.hostname, remote.owner, remote.name)
    digest = hashlib.sha256("/".join(identity).encode()).hexdigest()
    plain, hashed = remote.id, f"{remote.id[:190]}-{digest[:8]}"
    known = {r.id: (r.hostname, r.owner, r.name) for r in list_repositories(home) if r.id in {plain, hashed}}
    for name in (plain, hashed):
        if known.get(name) == identity:
            return name
    return hashed if plain in known or is_clone_of_other_remote(home.clone(plain), remote) else plain
