"""Worktrees as full checkouts: each has all files, and changes are found by a walk over all of them.

A file that still has the stamp of its last read is not read again (statcache.py).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sandbox.files.checkout import check_out, remove_tree
from sandbox.files.git_mask import write_mask
from sandbox.files.names import EntryKind
from sandbox.files.stamps import Familiar
from sandbox.files.tree import WorktreeFiles
from sandbox.git.objects import list_tree
from sandbox.git.process import Git
from sandbox.policy.paths import folders_above, show_path
from sandbox.workspaces.changes import Changes, Comparison, inside
from sandbox.workspaces.ignore import IgnoreRules
from sandbox.workspaces.layout import Base, Kind, Site
from sandbox.workspaces.pristine import file_specs
from sandbox.workspaces.statcache import Index, index_of, keep


class Plain:
    """The layout that works on every host."""

    kind: Kind = "plain"

    def lay_out(self, git: Git, tree: str, site: Site) -> None:
        """See `Layout`."""
        check_out(site.root, file_specs(git, list_tree(git, tree)), site.owner)
        try:
            write_mask(site.root, site.mask)
            _remember(git, tree, site)
        except BaseException:
            self.remove(site)
            raise

    def make_ready(self, site: Site) -> None:
        """See `Layout`."""

    def put_away(self, site: Site) -> None:
        """See `Layout`."""

    def is_ready(self, site: Site) -> bool:
        """See `Layout`."""
        return site.root.is_dir()

    def find_changes(self, git: Git, site: Site, base: Base, head_tree: str) -> Changes:
        """See `Layout`. Cost: a stat of every file, and reading the changed ones. Build output is skipped."""
        horizon = site.memory.horizon() if site.memory else None
        index = index_of(git, head_tree, site.root, site.memory)
        gitlinks = base.facts.gitlink_paths()
        familiar = _familiar(index, gitlinks)
        with WorktreeFiles(site.root) as files:
            entries = list(files.walk(_prune(index.folders, base.rules), familiar=familiar))
            head = index.entries(leave_out=familiar.whole)
            comparison = Comparison(files, head, gitlinks, len(head_tree))
            present = comparison.look_at(entries, base.rules)
        comparison.missing(head.keys() - present - familiar.parts)
        if horizon:
            index.learn(comparison.same, horizon)
            keep(index, site.root, site.memory)
        return comparison.result()

    def pristine(self, site: Site) -> None:
        """See `Layout`."""

    def remove(self, site: Site) -> None:
        """See `Layout`."""
        if site.root.exists():
            remove_tree(site.root)
        if site.memory:
            site.memory.forget()


def _remember(git: Git, tree: str, site: Site) -> None:
    """Store the index of a new worktree, while its files are exactly what we wrote."""
    if site.memory is None:
        return
    horizon = site.memory.horizon()
    index = Index.of(git, tree)
    familiar = _familiar(index, ())
    with WorktreeFiles(site.root) as files:
        kinds = {entry.path: entry.kind for entry in files.walk(lambda _: False, familiar=familiar)}
    readable = {EntryKind.FILE, EntryKind.SYMLINK}
    index.learn({path: stamp for path, stamp in familiar.changed.items() if kinds[path] in readable}, horizon)
    keep(index, site.root, site.memory)


def _familiar(index: Index, gitlinks: Collection[bytes]) -> Familiar:
    """The files that the index knows, except those inside submodules: these are always reported."""
    places = set(gitlinks)
    folders = (folder for folder in index.folders if folder not in places and not inside(folder, places))
    return Familiar({folder: index.folders[folder].known for folder in folders})


def _prune(tracked: Collection[bytes], rules: IgnoreRules) -> _Prune:
    return _Prune(frozenset(tracked) | folders_above(tracked), rules)


@dataclass(frozen=True)
class _Prune:
    """Tells a walk which directories to skip: ignored ones without tracked files."""

    tracked_folders: frozenset[bytes]
    rules: IgnoreRules

    def __call__(self, path: bytes) -> bool:
        return path not in self.tracked_folders and self.rules.ignored(show_path(path), directory=True)
