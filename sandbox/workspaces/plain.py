"""Worktrees in full: each has its own checkout, and changes are found by a walk over all of it."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass

from sandbox.files.checkout import check_out, remove_tree
from sandbox.files.mask import write_mask
from sandbox.files.tree import WorktreeFiles
from sandbox.git.objects import TreeEntry, list_tree
from sandbox.git.process import Git
from sandbox.policy.paths import show_path
from sandbox.workspaces.changes import Changes, Comparison
from sandbox.workspaces.ignore import IgnoreRules
from sandbox.workspaces.layout import Base, Kind, Site
from sandbox.workspaces.pristine import file_specs


class Plain:
    """The layout that works on every host."""

    kind: Kind = "plain"

    def lay_out(self, git: Git, tree: str, site: Site) -> None:
        """See `Layout`."""
        check_out(site.root, file_specs(git, list_tree(git, tree)), site.owner)
        try:
            write_mask(site.root, site.mask)
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
        """See `Layout`. Cost: every file is read once; build output is not entered."""
        head = {entry.path: entry for entry in list_tree(git, head_tree)}
        with WorktreeFiles(site.root) as files:
            entries = list(files.walk(_prune(head, base.rules)))
            comparison = Comparison(files, head, base.facts.gitlink_paths(), len(head_tree))
            present = comparison.look_at(entries, base.rules)
        comparison.missing(head.keys() - present)
        return comparison.result()

    def pristine(self, site: Site) -> None:
        """See `Layout`."""

    def remove(self, site: Site) -> None:
        """See `Layout`."""
        if site.root.exists():
            remove_tree(site.root)


def _prune(head: Mapping[bytes, TreeEntry], rules: IgnoreRules) -> _Prune:
    folders: set[bytes] = set()
    for path in head:
        folder = posixpath.dirname(path)
        while folder and folder not in folders:
            folders.add(folder)
            folder = posixpath.dirname(folder)
    return _Prune(frozenset(folders), rules)


@dataclass(frozen=True)
class _Prune:
    """Directories a walk does not enter: ignored ones that hold nothing tracked."""

    tracked_folders: frozenset[bytes]
    rules: IgnoreRules

    def __call__(self, path: bytes) -> bool:
        return path not in self.tracked_folders and self.rules.ignored(show_path(path), directory=True)
