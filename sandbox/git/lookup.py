"""Look single paths up in a tree: costs what is asked, not what the tree holds."""

from __future__ import annotations

import os
from collections.abc import Collection

from sandbox.git.objects import TreeEntry, list_tree
from sandbox.git.process import Git

_ARGUMENT_BYTES = 128 * 1024  # of one command line; more paths than fit are taken from a listing of the whole tree


def look_up(git: Git, tree: str, paths: Collection[bytes]) -> dict[bytes, TreeEntry]:
    """Leaves at these paths, and below those that are directories. Sizes are not looked at.

    Raises: `not_found` for a tree that cannot be read.
    """
    if not paths:
        return {}
    if sum(len(path) + 1 for path in paths) > _ARGUMENT_BYTES:
        return _below(list_tree(git, tree), paths)
    arguments = [os.fsdecode(path) for path in sorted(paths)]
    out = git.run("ls-tree", "-r", "-z", "--full-tree", tree, "--", *arguments)
    return {entry.path: entry for entry in map(_entry, out.split(b"\0")[:-1])}


def _entry(record: bytes) -> TreeEntry:
    head, path = record.split(b"\t", 1)
    mode, _, oid = head.decode().split()
    return TreeEntry(path, mode, oid, None)


def _below(entries: list[TreeEntry], paths: Collection[bytes]) -> dict[bytes, TreeEntry]:
    wanted = set(paths)
    return {entry.path: entry for entry in entries if _named(entry.path, wanted)}


def _named(path: bytes, wanted: set[bytes]) -> bool:
    while path not in wanted:
        path, _, name = path.rpartition(b"/")
        if not path or not name:
            return False
    return True
