"""Trees of a task's working state that are not kept: their ids, and their objects in a store of a look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sandbox.git import new_commits, objects
from sandbox.git.entries import TreeChange
from sandbox.git.process import Git
from sandbox.git.scratch_objects import scratch_objects
from sandbox.lazy_module import LazyModule

if TYPE_CHECKING:
    from sandbox.git.trees import few_changes
else:  # loaded where files have changed (docs/adr/0080)
    few_changes = LazyModule("sandbox.git.trees.few_changes")


def compute_tree_id(git: Git, base_commit: str, changes: Sequence[TreeChange]) -> str:
    """The id that `build_tree` returns, without its objects. Raises: as `build_tree`."""
    if not changes:
        return objects.tree_of(git, base_commit)
    if known := few_changes.compute_tree_id(git, base_commit, changes):
        return known
    with scratch_objects(git) as aside:
        return new_commits.build_tree(aside, base_commit, changes)


def build_scratch_tree(
    aside: Git, base_commit: str, changes: Sequence[TreeChange], *, is_compared: bool = False
) -> str:
    """As `build_tree`, for a git of `scratch_objects`. `is_compared`: the caller itself compares the tree with
    `base_commit` (`require_intended_changes`). Raises: as `build_tree`.
    """
    if changes and (known := few_changes.store_tree(aside, base_commit, changes)):
        return known
    return (new_commits.build_uncompared_tree if is_compared else new_commits.build_tree)(aside, base_commit, changes)
