"""The tree of a local directory as it is, with what is not committed: for `run --include-changes`.

Its objects are not kept: they are in a store of their own until the `with` block ends, so the tree is on no branch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import new_commits
from sandbox.git.contents import spool_contents
from sandbox.git.local.local_remotes import local_path_of
from sandbox.git.process import Git
from sandbox.git.scratch_objects import scratch_objects
from sandbox.models import ChosenSettings, UncommittedChange, UncommittedChanges
from sandbox.workbench.controller.disk_admission import Writer
from sandbox.workbench.controller.disk_demands import demand_of_objects
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.clone import UpdatedRepository
from sandbox.workbench.repositories.commit_facts import gather_facts_of_tree, list_commit, load_facts_of_listing
from sandbox.workbench.repositories.commit_settings import complete_settings
from sandbox.workbench.repositories.repository_settings import choose_artifacts
from sandbox.workspaces.base_facts import BaseFacts
from sandbox.workspaces.changes import Changes
from sandbox.workspaces.comparison_limits import compare_within_memory
from sandbox.workspaces.directory_changes import read_directory_changes
from sandbox.workspaces.working_directory import MAX_NAMED


@dataclass(frozen=True)
class DirectoryTree:
    """`git` reads the objects of `tree`."""

    git: Git
    tree: str
    facts: BaseFacts
    changes: UncommittedChanges


@contextmanager
def build_directory_tree(
    services: Services, updated: UpdatedRepository, ref: str, commit: str, chosen: ChosenSettings
) -> Iterator[DirectoryTree]:
    """Build the tree of the working directory of a local repository, on top of the commit that it has checked out.

    `chosen`: the settings of the repository or the caller.

    Raises: `invalid_input` for another ref, and for a repository without a working directory; `quota_exceeded`.
    """
    root = local_path_of(services.remotes.parse(updated.repository.remote_url))
    if root is None or ref != "HEAD" or not (root / ".git").exists():
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"{ref[:100]} at {updated.repository.remote_url} has no uncommitted changes to include",
            hint="`sandbox run DIR --include-changes` verifies the files of DIR as they are, without --ref.",
        )
    git, head = updated.git, updated.default_head
    listing = head if commit == head.commit else list_commit(git, commit)
    facts = load_facts_of_listing(services.home, services.policies, updated.repository.id, listing, chosen.folders)
    in_force = complete_settings(services.home, services.policies, updated.repository.id, facts, chosen)
    artifacts = choose_artifacts(services.policies, facts, in_force)
    with scratch_objects(git) as aside:
        with spool_contents(git) as spool:
            find = partial(read_directory_changes, git, root, (listing.entries, facts), artifacts, spool)
            with (
                compare_within_memory(spool, find) as changes,
                services.disk.admit(Writer.LOOK, demand_of_objects(changes.tree)),
            ):
                tree, summary = new_commits.build_tree(aside, commit, changes.tree), _summarize(changes)
        found = facts if tree == listing.tree else gather_facts_of_tree(services.policies, aside, tree, chosen.folders)
        yield DirectoryTree(aside, tree, found, summary)


def _summarize(changes: Changes) -> UncommittedChanges:
    named = tuple(UncommittedChange(path=change.path, kind=change.kind) for change in changes.shown[:MAX_NAMED])
    left_out = changes.rejected[:MAX_NAMED]
    return UncommittedChanges(count=len(changes.shown), changes=named, complete=True, included=True, left_out=left_out)
