"""The layout of a worktree on disk: one small protocol with two kinds.

`overlay`, where the host allows it: a shared pristine checkout below, the task's changes above; costs depend on the
changes only. `plain` elsewhere: a full checkout per task, which is walked as a whole. Both give the same answers.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal, Protocol

from sandbox.files.idmap import IdMapping
from sandbox.git.contents import ContentSpool
from sandbox.git.process import Git
from sandbox.lazy_dataclass import dataclass
from sandbox.workspaces.added_trees import AddedTrees
from sandbox.workspaces.base_facts import BaseFacts
from sandbox.workspaces.changes import Changes
from sandbox.workspaces.comparison_limits import ComparisonLimits
from sandbox.workspaces.ignore import IgnoreRules
from sandbox.workspaces.large_files import NO_LARGE_FILES, LargeFiles
from sandbox.workspaces.own_disk import NewDisk, find_files, has_disk
from sandbox.workspaces.statcache import StatCacheFiles

LayoutKind = Literal["overlay", "plain"]


@dataclass(frozen=True)
class WorktreePaths:
    """The directories of one worktree: the root that guests see, the overlay's layers, the pristine checkouts.

    `owner`: uid and gid of its files, None for the controller's. `pristine_owner`: the same for the pristine checkouts,
    which all worktrees share. `mask`: content of its `.git` file. `stat_cache`: files of a plain worktree's stat cache,
    None for one that is compared only once. `new_disk`: what a new overlay gets; None: no disk of its own. `added`,
    `large`: the submodules and the files of Git LFS that a new worktree gets.
    """

    root: Path
    layers: Path
    pristines: Path
    owner: tuple[int, int] | None
    pristine_owner: tuple[int, int] | None
    mask: bytes
    stat_cache: StatCacheFiles | None = None
    new_disk: NewDisk | None = None
    added: AddedTrees = ()
    large: LargeFiles = NO_LARGE_FILES

    def without_stat_cache(self) -> WorktreePaths:
        """For a comparison that reads every file. A process of this host that has a file mapped can change it without a
        trace in its stamp (files/stamps.py). Of guests it is known when they ran, of other processes it is not.
        """
        return replace(self, stat_cache=None)

    @property
    def upper(self) -> Path:
        """The overlay's upper directory. On a disk of its own it is visible while the disk is mounted."""
        return find_files(self.layers) / "upper"

    @property
    def report(self) -> Path | None:
        """Directory on the worktree's own disk for the report files of its checks; None without a disk."""
        return find_files(self.layers) / "report" if has_disk(self.layers) else None

    @property
    def id_mapping(self) -> IdMapping | None:
        """The change of owners between a pristine checkout and the worktree over it; None without one."""
        if self.owner is None or self.pristine_owner is None or self.owner == self.pristine_owner:
            return None
        return IdMapping(self.pristine_owner, self.owner)


@dataclass(frozen=True)
class BaseTree:
    """Facts of the tree that a worktree started from, and the rules for ignored files. `has_submodules`: their files
    are in the worktree.
    """

    facts: BaseFacts
    rules: IgnoreRules
    has_submodules: bool = False


class Layout(Protocol):
    """One kind of layout."""

    kind: LayoutKind

    def create(self, git: Git, tree: str, site: WorktreePaths) -> None:
        """Create a new worktree with the files of `tree`. On failure all of it is removed.

        Raises: `quota_exceeded` for a tree that is too large, before any file is written; `unsafe_repository`.
        """

    def make_durable(self, site: WorktreePaths) -> None:
        """Sync a worktree that was just made, so that a power failure leaves all of it. Raises: OSError."""

    def ensure_mounted(self, site: WorktreePaths) -> None:
        """Mount the worktree if it is not mounted, e.g. after a reboot. The caller holds a lock of this worktree."""

    def unmount(self, site: WorktreePaths) -> None:
        """Unmount the worktree. Its content is kept."""

    def is_mounted(self, site: WorktreePaths) -> bool:
        """Whether the files of the worktree are visible in `root`."""

    def find_changes(
        self,
        git: Git,
        site: WorktreePaths,
        base: BaseTree,
        head_tree: str,
        spool: ContentSpool,
        limits: ComparisonLimits,
    ) -> Changes:
        """The differences from the tree of the task's head. `spool` holds the new contents.

        Raises: `quota_exceeded` past the limits.
        """

    def find_pristine(self, site: WorktreePaths) -> Path | None:
        """The immutable checkout of the base tree below the worktree, named by the tree's id; None if there is none."""

    def remove(self, site: WorktreePaths) -> None:
        """Delete the worktree, including hostile leftovers of a guest. Idempotent."""
