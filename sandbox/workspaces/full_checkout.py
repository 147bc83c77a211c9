"""Worktrees as full checkouts: each has all files, and changes are found by a walk over all of them.

A file that still has the stamp of its last read is not read again (statcache.py).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from sandbox.files.checkout import check_out, remove_tree
from sandbox.files.git_mask import write_mask
from sandbox.files.names import EntryKind
from sandbox.files.stamps import KnownFiles
from sandbox.files.tree import WorktreeFiles
from sandbox.git.contents import ContentSpool
from sandbox.git.objects import list_tree
from sandbox.git.process import Git
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.policy.paths import parent_folders, show_path
from sandbox.workspaces.added_trees import list_files
from sandbox.workspaces.changes import Changes, Comparison, find_pointers, is_inside
from sandbox.workspaces.comparison_limits import ComparisonLimits
from sandbox.workspaces.ignore import IgnoreRules
from sandbox.workspaces.layout import BaseTree, LayoutKind, WorktreePaths
from sandbox.workspaces.statcache import StatIndex, load_or_build, save_if_worth

if TYPE_CHECKING:
    from sandbox import durable
else:  # loaded where a worktree is made (docs/adr/0080)
    durable = LazyModule("sandbox.durable")


class PlainLayout:
    """The layout that works on every host."""

    kind: LayoutKind = "plain"

    def create(self, git: Git, tree: str, site: WorktreePaths) -> None:
        """See `Layout`."""
        check_out(site.root, list_files(git, list_tree(git, tree), site.added, site.large), site.owner)
        try:
            write_mask(site.root, site.mask)
            _save_first_index(git, tree, site)
        except BaseException:
            self.remove(site)
            raise

    def make_durable(self, site: WorktreePaths) -> None:
        """See `Layout`. One sync for all files."""
        durable.make_durable(site.root)

    def ensure_mounted(self, site: WorktreePaths) -> None:
        """See `Layout`."""

    def unmount(self, site: WorktreePaths) -> None:
        """See `Layout`."""

    def is_mounted(self, site: WorktreePaths) -> bool:
        """See `Layout`."""
        return site.root.is_dir()

    def find_changes(
        self,
        git: Git,
        site: WorktreePaths,
        base: BaseTree,
        head_tree: str,
        spool: ContentSpool,
        limits: ComparisonLimits,
    ) -> Changes:
        """See `Layout`. Cost: a stat of every file, and reading the changed ones. Build output is skipped."""
        horizon = site.stat_cache.trusted_before() if site.stat_cache else None
        index = load_or_build(git, head_tree, site.root, site.stat_cache)
        gitlinks = base.facts.gitlink_paths()
        familiar = _known_files(index, gitlinks)
        with WorktreeFiles(site.root) as files:
            prune = _prune(index.folders, base.rules, gitlinks if base.has_submodules else ())
            names = index.add_to(limits.names, folders=len(prune.tracked_folders))
            entries = list(files.walk(prune, names, familiar))
            head = index.entries(leave_out=familiar.unchanged_folders)
            pointers = find_pointers(git, base.facts, head, entries)
            comparison = Comparison(files, head, base.facts, spool, limits, pointers)
            present = comparison.compare_entries(entries, base.rules)
        comparison.add_deletions(head.keys() - present - familiar.unchanged_files)
        if horizon:
            index.store_stamps(comparison.equal_files, horizon)
            save_if_worth(index, site.root, site.stat_cache)
        return comparison.result()

    def find_pristine(self, site: WorktreePaths) -> None:
        """See `Layout`."""

    def remove(self, site: WorktreePaths) -> None:
        """See `Layout`."""
        if site.root.exists():
            remove_tree(site.root)
        if site.stat_cache:
            site.stat_cache.forget()


def _save_first_index(git: Git, tree: str, site: WorktreePaths) -> None:
    """Store the index of a new worktree, while its files are exactly what we wrote."""
    if site.stat_cache is None:
        return
    horizon = site.stat_cache.trusted_before()
    index = StatIndex.of(git, tree)
    familiar = _known_files(index, ())
    with WorktreeFiles(site.root) as files:
        kinds = {entry.path: entry.kind for entry in files.walk(lambda _: False, known=familiar)}
    readable = {EntryKind.FILE, EntryKind.SYMLINK}
    index.store_stamps({path: stamp for path, stamp in familiar.new_stamps.items() if kinds[path] in readable}, horizon)
    save_if_worth(index, site.root, site.stat_cache)


def _known_files(index: StatIndex, gitlinks: Collection[bytes]) -> KnownFiles:
    """The files that the index knows, except those inside submodules: these are always reported."""
    places = set(gitlinks)
    folders = (folder for folder in index.folders if folder not in places and not is_inside(folder, places))
    return KnownFiles({folder: index.folders[folder].known for folder in folders})


def _prune(tracked: Collection[bytes], rules: IgnoreRules, submodules: Collection[bytes]) -> _Prune:
    return _Prune(frozenset(tracked) | parent_folders(tracked), rules, frozenset(submodules))


@dataclass(frozen=True)
class _Prune:
    """Tells a walk which directories to skip: ignored ones without tracked files, and submodules: no commit of the task
    can hold their files, and no index says which of them are as they were.
    """

    tracked_folders: frozenset[bytes]
    rules: IgnoreRules
    submodules: frozenset[bytes]

    def __call__(self, path: bytes) -> bool:
        if path in self.submodules:
            return True
        return path not in self.tracked_folders and self.rules.is_ignored(show_path(path), directory=True)
