"""Pristine checkouts: one immutable checkout a tree, shared by all who only read."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

from sandbox.files.checkout import check_out, remove_tree
from sandbox.git.objects import TreeEntry
from sandbox.git.process import Git
from sandbox.workspaces.worktree import file_specs


def ensure_pristine(git: Git, entries: Sequence[TreeEntry], path: Path, owner: tuple[int, int] | None) -> Path:
    """The checkout of `entries` at `path`, made beside and renamed when it is not there. The caller holds its lock.

    Never mounted writable. Symlinks are laid out as they are; whoever reads goes through `files/`.
    """
    if path.is_dir():
        return path
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        check_out(beside, file_specs(git, entries), owner)
        beside.rename(path)
    finally:
        remove_tree(beside)
    return path
