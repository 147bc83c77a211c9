"""Use-case: the map of a repository or task."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from sandbox.context import ctags
from sandbox.context.map import build_map, count_mentions
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.blobs import read_blobs
from sandbox.git.cache_clones import resolve_commit
from sandbox.git.entries import SYMLINK, TreeEntry
from sandbox.git.objects import list_tree, tree_of
from sandbox.images import resolve_image
from sandbox.models import RepoMap
from sandbox.policy.paths import show_path
from sandbox.store.home import Home
from sandbox.store.records import find_task
from sandbox.workbench.controller.guest_accounts import lease_account
from sandbox.workbench.controller.guest_memory import find_guest_group
from sandbox.workbench.controller.registered_repositories import RegisteredRepositories
from sandbox.workbench.controller.runtimes import choose_runtime
from sandbox.workbench.controller.services import Services
from sandbox.workbench.controller.startup import ensure_recovered
from sandbox.workbench.repositories.clone import ensure_pristine_checkout

MAX_MAP_TOKENS = 100_000
MENTION_BYTES = 32 * 1024**2
MENTION_FILE_BYTES = 256 * 1024


def map_symbols(services: Services, owner_id: str, token_budget: int, globs: Sequence[str]) -> RepoMap:
    """The most important symbols of a repository's default branch or a task's last commit, within a token budget."""
    if not 1 <= token_budget <= MAX_MAP_TOKENS:
        raise SandboxError(ErrorCode.INVALID_INPUT, f"A token budget must be from 1 to {MAX_MAP_TOKENS}")
    ensure_recovered(services)
    repo_id, commit = _find_commit(services.home, services.repositories, owner_id)
    _, git = services.repositories.open(repo_id)
    tree = tree_of(git, commit)
    entries = list_tree(git, tree)
    site = services.image_build_context
    name = f"sandbox-map-{services.presence.new_id()}"
    with lease_account(services, name) as account:
        place = ctags.CtagsRun(
            name=name,
            engine=services.guest_engine,
            policy=services.policies.container,
            image_digest=resolve_image(site, "base"),
            runtime=choose_runtime(services),
            account=account,
            instance=services.home.instance_id,
            cgroup_parent=find_guest_group(services).parent,
            tree=ensure_pristine_checkout(services, repo_id, git, entries, tree),
        )
        found = ctags.read_symbols(place)
    selected = [e for e in entries if not globs or any(fnmatchcase(show_path(e.path), g) for g in globs)]
    paths = {show_path(e.path) for e in selected}
    symbols = [s for s in found if s.path in paths]
    return build_map(symbols, count_mentions(read_blobs(git, _choose_blobs(selected))), token_budget, len(selected))


def _choose_blobs(entries: Sequence[TreeEntry]) -> list[str]:
    """Blobs in which to count words: files up to 256 KiB, in total up to `MENTION_BYTES`."""
    chosen, left = [], MENTION_BYTES
    for entry in entries:
        if entry.mode != SYMLINK and entry.size is not None and entry.size <= min(left, MENTION_FILE_BYTES):
            chosen.append(entry.oid)
            left -= entry.size
    return chosen


def _find_commit(home: Home, repositories: RegisteredRepositories, owner_id: str) -> tuple[str, str]:
    if owner_id.startswith("task-"):
        task = find_task(home, owner_id, allow_closed=True)
        return task.repo_id, task.head_commit
    repository, git = repositories.open(owner_id)
    return repository.id, resolve_commit(git, "HEAD", repository.default_branch)
