"""Trees of other repositories that a checkout holds in its folders: submodules."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
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

    def specs(self) -> Iterator[FileSpec]:
        """Its files to write."""
        leaves = self.entries()
        blobs = stream_blobs(self.git, [e.oid for e in leaves])
        for entry, blob in zip(leaves, blobs, strict=True):
            yield entry.path, entry.mode, blob.chunks()


AddedTrees = tuple[AddedTree, ...]


def name_checkout(tree: str, added: AddedTrees) -> str:
    """The name of a pristine checkout: it says exactly what the checkout holds."""
    if not added:
        return tree
    text = b"".join(one.folder + b"\0" + one.tree.encode() + b"\0" for one in added)
    return f"{tree}-with-{hashlib.sha256(text).hexdigest()[:16]}"


def list_added_files(added: AddedTrees) -> Iterator[FileSpec]:
    """The files of all added trees to write."""
    for one in added:
        yield from one.specs()
