"""The files of a checkout: those of its tree, and of trees of other repositories in its folders (submodules)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sandbox.files.checkout import FileSpec
from sandbox.git.blobs import stream_blobs
from sandbox.git.entries import GITLINK, TreeEntry
from sandbox.git.objects import list_tree
from sandbox.git.process import Git


@dataclass(frozen=True)
class AddedTree:
    """A tree, the git that reads its objects, and the folder where its files belong, from the top of the checkout."""

    folder: bytes
    git: Git
    tree: str

    def entries(self) -> list[TreeEntry]:
        """Its leaves, with paths from the top of the checkout. Raises: `quota_exceeded`, `not_found`."""
        return [
            TreeEntry(self.folder + b"/" + e.path, e.mode, e.oid, e.size)
            for e in list_tree(self.git, self.tree)
            if e.mode != GITLINK
        ]


AddedTrees = tuple[AddedTree, ...]


def name_checkout(tree: str, added: AddedTrees) -> str:
    """The name of a pristine checkout: it says exactly what the checkout holds."""
    if not added:
        return tree
    text = b"".join(one.folder + b"\0" + one.tree.encode() + b"\0" for one in added)
    return f"{tree}-with-{hashlib.sha256(text).hexdigest()[:16]}"


def list_files(git: Git, entries: Iterable[TreeEntry], added: AddedTrees = ()) -> Iterator[FileSpec]:
    """The files of a tree to write, then those of the trees that are added. Submodules of the tree are left out."""
    leaves = [e for e in entries if e.mode != GITLINK]
    blobs = stream_blobs(git, [e.oid for e in leaves])
    for entry, blob in zip(leaves, blobs, strict=True):
        yield entry.path, entry.mode, blob.chunks()
    for one in added:
        yield from list_files(one.git, one.entries())
