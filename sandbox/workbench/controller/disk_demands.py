"""How much an operation may add to the disk, computed before it writes anything."""

from __future__ import annotations

from collections.abc import Iterable

from sandbox.git.diff import blob_sizes, diff_trees
from sandbox.git.entries import GITLINK, TreeChange, TreeEntry
from sandbox.git.process import Git
from sandbox.policy.paths import parent_folders
from sandbox.workbench.controller.disk_admission import Demand
from sandbox.workspaces.large_files import NO_LARGE_FILES, LargeFiles

BLOCK_BYTES = 4096
"""A file takes whole blocks, of this size on ext4, xfs, btrfs and tmpfs."""


def demand_of_contents(sizes: Iterable[int]) -> Demand:
    """Files of these sizes in bytes."""
    listed = list(sizes)
    return Demand(sum(-(-size // BLOCK_BYTES) * BLOCK_BYTES for size in listed), len(listed))


def demand_of_checkout(entries: Iterable[TreeEntry]) -> Demand:
    """A checkout of these leaves, which were listed with sizes, and of their directories."""
    leaves = [entry for entry in entries if entry.mode != GITLINK]
    folders = len(parent_folders(entry.path for entry in leaves)) + 1
    return demand_of_contents(entry.size or 0 for entry in leaves) + Demand(folders * BLOCK_BYTES, folders)


def demand_of_difference(git: Git, before: str, after: str, large: LargeFiles = NO_LARGE_FILES) -> Demand:
    """The files that a worktree gets when it changes from one tree to the other. What it loses is not subtracted:
    a restore writes before it removes.
    """
    differ = diff_trees(git, before, after)
    new = [(c.path, c.new_mode, c.new_oid) for c in differ if c.new_oid is not None and c.new_mode != GITLINK]
    sizes = blob_sizes(git, (oid for _, _, oid in new))
    return demand_of_contents(large.size_of(TreeEntry(*leaf, sizes.get(leaf[2], 0))) for leaf in new)


def demand_of_objects(changes: Iterable[TreeChange]) -> Demand:
    """The git objects of these changes: each content, and the trees along its path.

    Twice: fast-import writes a pack first and then unpacks a small one. Contents that do not compress are not larger.
    """
    once = Demand()
    for change in changes:
        depth = change.path.count(b"/") + 1
        once += demand_of_contents([change.content.size if change.content else 0]) + Demand(depth * BLOCK_BYTES, depth)
    return once + once
