"""Pristine checkouts: one immutable checkout per tree, shared by the overlays above it and by readers."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.files.checkout import check_out, remove_tree
from sandbox.git.entries import TreeEntry
from sandbox.git.objects import list_tree
from sandbox.git.process import Git
from sandbox.lazy_module import LazyModule
from sandbox.private_folders import make_private
from sandbox.workspaces.added_trees import AddedTrees, list_files
from sandbox.workspaces.large_files import NO_LARGE_FILES, LargeFiles

if TYPE_CHECKING:
    from sandbox import durable
else:  # loaded where a checkout is made (docs/adr/0080)
    durable = LazyModule("sandbox.durable")


def ensure_pristine(
    git: Git,
    source: str | Sequence[TreeEntry],
    path: Path,
    owner: tuple[int, int] | None,
    added: AddedTrees = (),
    large: LargeFiles = NO_LARGE_FILES,
) -> Path:
    """Return the checkout of a tree, or of some of its entries, at `path`; create it if missing. `added`,
    `large`: what it also holds, which its name says.

    Created in a temporary directory, then renamed. Never mounted writable. Symlinks are written unchanged: read through
    `files/` only. The caller holds its lock. Raises: `quota_exceeded`, `unsafe_repository`.
    """
    if path.is_dir():
        os.utime(path)  # the time of last use, for `collect`
        return path
    entries = list_tree(git, source) if isinstance(source, str) else source
    make_private(path.parent)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        check_out(beside, list_files(git, entries, added, large), owner)
        durable.make_durable(beside)  # else a power failure could leave empty files in the base
        beside.rename(path)
    finally:
        remove_tree(beside)
    return path


def remove_unused(folder: Path, in_use: Collection[str], unused_s: float) -> list[str]:
    """Remove checkouts in `folder` that are not in use and were not requested for `unused_s`. Returns their names.

    The caller holds the lock under which `in_use` was read.
    """
    unused = find_unused(folder, in_use, unused_s)
    for path in unused:
        remove_checkout(path)
    return [path.name for path in unused]


def find_unused(folder: Path, in_use: Collection[str], unused_s: float) -> list[Path]:
    """The checkouts that `remove_unused` would remove, those used last at the end."""
    last_use = {path: path.stat().st_mtime for path in sorted(folder.glob("[!.]*/")) if path.name not in in_use}
    old = [path for path, at in last_use.items() if time.time() - at > unused_s]
    return sorted(old, key=last_use.__getitem__)


def remove_checkout(path: Path) -> None:
    """Remove one checkout. The caller holds the lock, and knows that it is not in use."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    path.rename(aside)
    remove_tree(aside)
