"""Worktrees as overlays over a shared pristine checkout: the cost of every operation depends on the changes only.

The layers directory has a file with the id of the tree below, and the task's upper and work directories, on a disk of
the task's own where the host can make one (own_disk.py). After a reboot the overlay is mounted again from them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.checkout import check_out, remove_tree
from sandbox.files.git_mask import MASK_NAME, write_mask
from sandbox.files.idmap import remove_view
from sandbox.files.names import WalkLimits
from sandbox.files.overlay_mounts import (
    OverlayLayers,
    UpperContents,
    is_mount_point,
    mount_overlay,
    read_upper,
    unmount_overlay,
    view_of,
)
from sandbox.files.tree import WorktreeFiles, sha256_of_chunks
from sandbox.git.blobs import stream_blobs
from sandbox.git.contents import ContentSpool
from sandbox.git.diff import diff_trees
from sandbox.git.entries import GITLINK, Content, RawChange, TreeEntry
from sandbox.git.objects import EMPTY_TREES, is_object_id, list_tree
from sandbox.git.process import Git
from sandbox.git.tree_lookup import find_leaves
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.lazy_pattern import lazy_pattern
from sandbox.policy.paths import parent_folders, show_path
from sandbox.private_folders import make_private
from sandbox.store.home import write_atomically
from sandbox.workspaces.added_trees import list_files, name_checkout
from sandbox.workspaces.changes import Changes, Comparison, find_pointers, is_inside
from sandbox.workspaces.comparison_limits import ComparisonLimits
from sandbox.workspaces.ignore import IgnoreRules
from sandbox.workspaces.layout import BaseTree, LayoutKind, WorktreePaths
from sandbox.workspaces.own_disk import (
    create_disk_if_possible,
    ensure_disk_mounted,
    find_files,
    is_disk_mounted,
    open_upper,
    unmount_disk,
)
from sandbox.workspaces.pristine import ensure_pristine

if TYPE_CHECKING:
    from sandbox import durable
else:  # loaded where a worktree is made (docs/adr/0080)
    durable = LazyModule("sandbox.durable")

_BASE, _CHECKOUT = "base", "checkout"
_WITH_ADDED = lazy_pattern(r"-with-[0-9a-f]{16}")


class OverlayLayout:
    """The layout for a controller that has the right to mount."""

    kind: LayoutKind = "overlay"

    def create(self, git: Git, tree: str, site: WorktreePaths) -> None:
        """See `Layout`. The caller holds the lock of the repository's pristine checkouts."""
        name = name_checkout(tree, site.added, site.large)
        ensure_pristine(git, tree, site.pristines / name, site.pristine_owner, site.added, site.large)
        try:
            _make_layers(site, tree, name)
            self.ensure_mounted(site)
            write_mask(site.root, site.mask)
        except BaseException:
            self.remove(site)
            raise

    def create_apart(self, git: Git, tree: str, site: WorktreePaths) -> None:
        """As `create`, but all files are the worktree's own, over a checkout of the empty tree. For a tree that is not
        needed again, on a disk of its own. The caller has made that checkout.
        """
        try:
            _make_layers(site, EMPTY_TREES[len(tree)], EMPTY_TREES[len(tree)])
            site.upper.rmdir()
            check_out(site.upper, list_files(git, list_tree(git, tree), site.added, site.large), site.owner)
            self.ensure_mounted(site)
            write_mask(site.root, site.mask)
        except BaseException:
            self.remove(site)
            raise

    def make_durable(self, site: WorktreePaths) -> None:
        """See `Layout`. The checkout below was synced when it was made, and so is each file that `restore_tree` writes.
        So only few directories are left; to wait for all that others write to the host's disk would take longer.
        """
        files = find_files(site.layers)
        if files != site.layers:
            durable.make_durable(files)  # a disk of its own
        else:
            durable.sync_all((site.upper / MASK_NAME, site.upper, files))
        durable.sync_all((site.layers, site.layers.parent, site.root.parent, site.layers.parent.parent))

    def ensure_mounted(self, site: WorktreePaths) -> None:
        """See `Layout`."""
        if self.is_mounted(site):
            return
        layers = _layers(site)
        if not layers.lower.is_dir():
            raise SandboxError(
                ErrorCode.INTERNAL,
                f"The pristine checkout below {site.root.name} is missing",
                details=str(layers.lower),
                hint="The task's changes are kept in its upper directory. Fetch the base commit again.",
            )
        ensure_disk_mounted(site.layers)
        if is_mount_point(site.root):
            return
        site.root.mkdir(exist_ok=True, mode=0o755)
        site.root.chmod(0o755)
        try:
            mount_overlay(layers, site.id_mapping)
        except OSError as error:
            raise SandboxError(
                ErrorCode.INTERNAL,
                f"The worktree {site.root.name} could not be mounted",
                details=error.strerror or str(error),
                hint="Run the controller as root, or set workspaces.worktree = 'plain' for new tasks.",
            ) from error

    def unmount(self, site: WorktreePaths) -> None:
        """See `Layout`."""
        unmount_overlay(site.root)
        if (view := view_of(site.upper)).exists():  # of a controller that was killed while it mounted
            remove_view(view)
        unmount_disk(site.layers)

    def is_mounted(self, site: WorktreePaths) -> bool:
        """See `Layout`."""
        return is_mount_point(site.root) and is_disk_mounted(site.layers)

    def find_changes(
        self,
        git: Git,
        site: WorktreePaths,
        base: BaseTree,
        head_tree: str,
        spool: ContentSpool,
        limits: ComparisonLimits,
    ) -> Changes:
        """See `Layout`."""
        below = base_of(site.layers)
        with open_upper(site.layers) as upper, WorktreeFiles(upper) as files:
            view = _View.of(git, upper, (below, head_tree), base.rules, limits)
            pointers = find_pointers(git, base.facts, view.head, view.upper.entries)
            comparison = Comparison(files, view.head, base.facts, spool, limits, pointers)
            present = comparison.compare_entries(view.upper.entries, base.rules)
        through = [e for path, e in view.moved_from.items() if not view.is_hidden(path)]
        for entry, blob in zip(through, stream_blobs(git, [e.oid for e in through]), strict=True):
            content = Content(entry.oid, blob.size, partial(_read_blob, git, entry.oid), is_stored=True)
            comparison.add_file(entry, content, sha256_of_chunks(blob.chunks()))
        comparison.add_deletions(path for path in view.head.keys() - present if not view.shows_below(path))
        return comparison.result()

    def find_pristine(self, site: WorktreePaths) -> Path | None:
        """See `Layout`."""
        lower = _layers(site).lower
        return lower if lower.is_dir() else None

    def remove(self, site: WorktreePaths) -> None:
        """See `Layout`."""
        self.unmount(site)
        for folder in (site.root, site.layers):
            if folder.exists():
                remove_tree(folder)


@dataclass(frozen=True)
class _View:
    """An upper directory over a tree, compared with another tree, the head.

    `known`: leaves of the tree below, at the paths of the upper directory. `head`: leaves of the head at these paths,
    and wherever the two trees differ. `moved_from`: leaves of the tree below where they differ.
    """

    upper: UpperContents
    known: Mapping[bytes, TreeEntry]
    head: Mapping[bytes, TreeEntry]
    moved_from: Mapping[bytes, TreeEntry]

    @classmethod
    def of(cls, git: Git, folder: Path, trees: tuple[str, str], rules: IgnoreRules, limits: ComparisonLimits) -> _View:
        upper = read_upper(folder, lambda path: rules.is_ignored(show_path(path), directory=True), limits.names)
        below, other = trees
        moved = _cached_difference(git, below, other)
        known = find_leaves(git, below, {*(e.path for e in upper.entries), *upper.hidden, *upper.skipped})
        moved_from = {
            c.path: TreeEntry(c.path, c.old_mode, c.old_oid, None) for c in moved if c.old_oid and c.old_mode != GITLINK
        }
        _read_tracked_directories(folder, upper, rules, {*known, *(c.path for c in moved)}, limits.names)
        upper.hidden |= {*known, *moved_from}.intersection(upper.skipped)  # a directory is in the place of such a leaf
        limits.names.require(len(known), 0)  # of a directory that was deleted
        head = dict(known)
        for change in moved:
            head.pop(change.path, None)
            if change.new_oid is not None:
                head[change.path] = TreeEntry(change.path, change.new_mode, change.new_oid, None)
        return cls(upper, known, head, moved_from)

    def is_hidden(self, path: bytes) -> bool:
        """Whether the upper directory replaces or deletes this path of the tree below."""
        return path in self.upper.hidden or is_inside(path, self.upper.hidden)

    def shows_below(self, path: bytes) -> bool:
        """Whether the leaf of the tree below is visible at this path."""
        return not self.is_hidden(path) and (path in self.known or path in self.moved_from)


def _read_blob(git: Git, oid: str) -> Iterator[bytes]:
    for blob in stream_blobs(git, [oid]):
        yield from blob.chunks()


def _cached_difference(git: Git, below: str, other: str) -> Sequence[RawChange]:
    """The difference of two trees. It is cached if this controller made the commit."""
    if below == other:
        return ()
    known = git.cache.differences.get((below, other))
    if known is None:
        known = tuple(diff_trees(git, below, other))
        git.cache.store_difference(below, other, known)
    return known


def _read_tracked_directories(
    folder: Path, upper: UpperContents, rules: IgnoreRules, tracked: Collection[bytes], limits: WalkLimits
) -> None:
    """Read ignored directories that have tracked files. `skipped` is then complete: also of directories in these."""
    folders = parent_folders(tracked)

    def skip(path: bytes) -> bool:
        return path not in folders and rules.is_ignored(show_path(path), directory=True)

    for start in [path for path in upper.skipped if path in folders]:
        more = read_upper(folder, skip, limits, start)
        upper.entries += more.entries
        upper.hidden |= more.hidden
        upper.skipped += more.skipped


def _make_layers(site: WorktreePaths, below: str, checkout: str) -> None:
    """`below`: id of the tree; `checkout`: name of its pristine checkout, which may hold submodules too."""
    make_private(site.layers.parent)
    site.layers.mkdir(mode=0o700)
    if site.new_disk is not None:
        create_disk_if_possible(site.layers, site.new_disk, site.owner)
    files = find_files(site.layers)
    (files / "work").mkdir(mode=0o700)
    for folder in (site.upper, site.report):
        if folder is not None:
            folder.mkdir(mode=0o755)
            folder.chmod(0o755)  # whatever the umask: a guest must be able to read it
            if site.owner is not None:
                os.chown(folder, *site.owner)
    write_atomically(site.layers / _BASE, below.encode())
    if checkout != below:
        write_atomically(site.layers / _CHECKOUT, checkout.encode())
    make_private(site.root.parent)
    site.root.mkdir(mode=0o755)
    site.root.chmod(0o755)


def _layers(site: WorktreePaths) -> OverlayLayers:
    return OverlayLayers(
        lower=site.pristines / checkout_of(site.layers),
        upper=site.upper,
        work=find_files(site.layers) / "work",
        merged=site.root,
    )


def base_of(layers: Path) -> str:
    """The id of the tree below an overlay, from its file. Raises: `internal` if that is damaged or missing."""
    try:
        below = (layers / _BASE).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        below = ""
    if not is_object_id(below):
        raise _damaged_error(layers, _BASE)
    return below


def checkout_of(layers: Path) -> str:
    """The name of the pristine checkout below an overlay. Raises: as `base_of`."""
    below = base_of(layers)
    try:
        name = (layers / _CHECKOUT).read_text(encoding="ascii")
    except FileNotFoundError:
        return below
    except (OSError, UnicodeDecodeError):
        name = ""
    if not name.startswith(below) or not _WITH_ADDED.fullmatch(name.removeprefix(below)):
        raise _damaged_error(layers, _CHECKOUT)
    return name


def _damaged_error(layers: Path, file: str) -> SandboxError:
    return SandboxError(
        ErrorCode.INTERNAL,
        f"The layers of worktree {layers.name} are damaged",
        details=str(layers / file),
        hint="Close the task with --delete --discard. Its commits are kept in the cache clone.",
    )
