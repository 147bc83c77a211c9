"""Facts of base commits, gathered once and stored: no operation on a task has to list the whole base tree again."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

from sandbox.git.blobs import read_blobs
from sandbox.git.entries import SYMLINK, TreeEntry
from sandbox.git.objects import list_tree, tree_of
from sandbox.git.process import Git
from sandbox.lazy_dataclass import dataclass
from sandbox.models import ChosenSettings
from sandbox.policy.paths import show_path
from sandbox.profiles import MARKER_BYTES, SUGGESTIONS, Profile
from sandbox.profiles.suggested_checks import list_suggested_folders
from sandbox.store.home import Home, write_json
from sandbox.suggestions.suggesting_files import SUGGESTING_FILES, WORKFLOWS, select_workflows
from sandbox.workbench.controller.policies_in_force import Policies
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.check_overrides import apply_overrides
from sandbox.workbench.repositories.commit_settings import complete_settings
from sandbox.workbench.repositories.repository_settings import (
    add_projects,
    choose_artifacts,
    choose_profile,
    read_settings,
)
from sandbox.workbench.repositories.stored_facts import read_stored_facts
from sandbox.workbench.repositories.suggested import add_trusted_suggestions
from sandbox.workspaces.base_facts import BaseFacts, gather_facts
from sandbox.workspaces.build_files import find_first_fits, find_folder_markers
from sandbox.workspaces.layout import BaseTree

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CommitListing:
    """A commit, its tree and the tree's leaves, which are listed at the first use: it may never come."""

    git: Git
    commit: str
    tree: str

    @cached_property
    def entries(self) -> list[TreeEntry]:
        """Raises: `quota_exceeded`, `not_found`."""
        return list_tree(self.git, self.tree)


@dataclass(frozen=True)
class TreeSource:
    """The tree to check, a commit that has it, and the repository with their objects.

    `commit`: its date bounds the versions of packages that are chosen. `similar_tree`: if a pristine checkout of it
    exists, a clean room is an overlay over it; '': of the tree itself.
    """

    repo_id: str
    git: Git
    tree: str
    commit: str
    similar_tree: str = ""


def load_base(home: Home, policies: Policies, repo_id: str, git: Git, commit: str) -> BaseTree:
    """A base commit as its worktrees need it."""
    chosen = read_settings(home, policies, repo_id)
    facts = load_facts(home, policies, repo_id, git, commit, chosen.folders)
    chosen = complete_settings(home, policies, repo_id, facts, chosen)
    rules = facts.rules(choose_artifacts(policies, facts, chosen))
    return BaseTree(facts, rules, has_submodules=bool(chosen.submodules))


def load_profile(services: Services, repo_id: str, git: Git, commit: str, name: str | None = None) -> Profile:
    """The profile that is chosen for a repository, or that matches the markers of a commit, with the checks that the
    commit suggests if the operator trusts them, and the operator's settings for this repository.

    `name`: a profile to use instead.
    """
    chosen = read_settings(services.home, services.policies, repo_id, name)
    facts = load_facts(services.home, services.policies, repo_id, git, commit, chosen.folders)
    chosen = complete_settings(services.home, services.policies, repo_id, facts, chosen)
    return profile_with_settings(services, repo_id, facts, chosen, strict=not name)


def profile_from_facts(services: Services, repo_id: str, facts: BaseFacts, name: str | None = None) -> Profile:
    """As `load_profile`, from facts that were read before."""
    chosen = read_settings(services.home, services.policies, repo_id, name)
    chosen = complete_settings(services.home, services.policies, repo_id, facts, chosen)
    return profile_with_settings(services, repo_id, facts, chosen, strict=not name)


def profile_with_settings(
    services: Services, repo_id: str, facts: BaseFacts, chosen: ChosenSettings, *, strict: bool
) -> Profile:
    """As `profile_from_facts`, for these settings, as in force at this commit. `strict`: as in `apply_overrides`."""
    extended = add_trusted_suggestions(services, repo_id, choose_profile(services.policies, facts, chosen), facts)
    complete = add_projects(services.policies, facts, chosen, extended)
    return apply_overrides(services.settings, repo_id, complete, strict=strict)


def load_facts(
    home: Home, policies: Policies, repo_id: str, git: Git, commit: str, folders: Collection[str] | None = None
) -> BaseFacts:
    """Facts of a commit: from the home; from git if they are not stored, or if a profile has a marker they lack, or the
    repository a folder. `folders`: instead of those in its settings.

    Raises: `quota_exceeded`, `not_found`.
    """
    below = read_settings(home, policies, repo_id).folders if folders is None else folders
    return _read_stored(home, policies, repo_id, commit, below) or _gather_and_store(
        home, policies, repo_id, list_commit(git, commit), below
    )


def load_facts_of_listing(
    home: Home, policies: Policies, repo_id: str, listing: CommitListing, folders: Collection[str] | None = None
) -> BaseFacts:
    """As `load_facts`, for a commit that has been listed already."""
    below = read_settings(home, policies, repo_id).folders if folders is None else folders
    return _read_stored(home, policies, repo_id, listing.commit, below) or _gather_and_store(
        home, policies, repo_id, listing, below
    )


def load_stored_facts(home: Home, policies: Policies, repo_id: str, commit: str) -> BaseFacts | None:
    """As `load_facts`, but None if they are not stored."""
    return _read_stored(home, policies, repo_id, commit, read_settings(home, policies, repo_id).folders)


def list_commit(git: Git, commit: str) -> CommitListing:
    """A commit, to list its tree. Raises: `not_found`."""
    return CommitListing(git, commit, tree_of(git, commit))


def gather_facts_of_tree(policies: Policies, git: Git, tree: str, folders: Collection[str]) -> BaseFacts:
    """As `load_facts`, for a tree that is not kept: its facts are not stored. Raises: `quota_exceeded`."""
    return _gather(policies, git, tree, list_tree(git, tree), folders)


def _gather_and_store(
    home: Home, policies: Policies, repo_id: str, listing: CommitListing, folders: Collection[str]
) -> BaseFacts:
    facts = _gather(policies, listing.git, listing.tree, listing.entries, folders)
    path = home.facts(repo_id, listing.commit)
    try:
        path.parent.mkdir(exist_ok=True, mode=0o700)
        write_json(path, facts.model_dump(mode="json"))
    except OSError as error:  # a full disk: a status has to work there too
        _log.info("the facts of %s could not be saved: %s", listing.commit[:12], error)
    return facts


def _gather(
    policies: Policies, git: Git, tree: str, entries: Sequence[TreeEntry], folders: Collection[str]
) -> BaseFacts:
    markers = _read_markers(git, entries, _list_marker_names(policies.profiles))
    suggested = list_suggested_folders(markers[SUGGESTIONS] or b"")
    below = _read_folder_markers(git, entries, policies, {*folders, *suggested})
    return gather_facts(git, tree, entries, markers, below, suggested)


def _list_marker_names(profiles: Mapping[str, Profile]) -> set[str]:
    named = {name for profile in profiles.values() for name in profile.markers}
    return named | {SUGGESTIONS, WORKFLOWS} | SUGGESTING_FILES


def _read_stored(
    home: Home, policies: Policies, repo_id: str, commit: str, folders: Collection[str]
) -> BaseFacts | None:
    """As `read_stored_facts`; also None when they lack a marker of a newer profile."""
    facts = read_stored_facts(home, repo_id, commit, folders)
    return facts if facts and _list_marker_names(policies.profiles) <= facts.markers.keys() else None


def _read_markers(git: Git, entries: Iterable[TreeEntry], names: Collection[str]) -> dict[str, bytes | None]:
    """Content of the named files and of workflows; None for a file that is absent, too large or not regular. For a
    pattern, that of the first file at the top that fits it.
    """
    found: dict[str, bytes | None] = dict.fromkeys(names)
    regular = {
        show_path(e.path): e.oid for e in entries if e.mode != SYMLINK and 0 <= _size_or_negative(e) <= MARKER_BYTES
    }
    found.update(dict.fromkeys(select_workflows(regular)))
    paths = {name: name for name in found if name in regular} | find_first_fits(regular, names)
    found.update(zip(paths, read_blobs(git, [regular[path] for path in paths.values()]), strict=True))
    return found


def _read_folder_markers(
    git: Git, entries: Iterable[TreeEntry], policies: Policies, declared: Collection[str]
) -> dict[str, dict[str, bytes]]:
    """As `_read_markers`, for folders at the top and the declared one: only files that are there."""
    names = {name for profile in policies.profiles.values() for name in profile.markers}
    regular = {
        show_path(e.path): e.oid for e in entries if e.mode != SYMLINK and 0 <= _size_or_negative(e) <= MARKER_BYTES
    }
    folders = find_folder_markers(regular, names, declared)
    paths = [path for files in folders.values() for path in files.values()]
    content = dict(zip(paths, read_blobs(git, [regular[path] for path in paths]), strict=True))
    return {folder: {name: content[path] for name, path in files.items()} for folder, files in folders.items()}


def _size_or_negative(entry: TreeEntry) -> int:
    return -1 if entry.size is None else entry.size
