"""The files of a checkout: those of its tree, and of trees of other repositories in its folders (submodules).

Files of Git LFS are laid out in place of their pointers, where the operator wants that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from sandbox.files.checkout import FileSpec
from sandbox.git.blobs import stream_blobs
from sandbox.git.entries import GITLINK, TreeEntry
from sandbox.git.objects import list_tree
from sandbox.git.process import Git
from sandbox.lazy_dataclass import dataclass
from sandbox.workspaces.large_files import NO_LARGE_FILES, LargeFiles


@dataclass(frozen=True)
class AddedTree:
    """A tree, the git that reads its objects, and the folder where its files belong, from the top of the checkout.

    `large`: its files of Git LFS, with paths from the top of the tree.
    """

    folder: bytes
    git: Git
    tree: str
    large: LargeFiles = NO_LARGE_FILES

    def entries(self) -> list[TreeEntry]:
        """Its leaves as they are laid out, with paths from the top of the checkout. Raises: `quota_exceeded`,
        `not_found`.
        """
        return [
            TreeEntry(self.folder + b"/" + e.path, e.mode, e.oid, self.large.size_of(e))
            for e in list_tree(self.git, self.tree)
            if e.mode != GITLINK
        ]


AddedTrees = tuple[AddedTree, ...]


def name_checkout(tree: str, added: AddedTrees, large: LargeFiles) -> str:
    """The name of a pristine checkout: it says exactly what the checkout holds."""
    text = b"".join(one.folder + b"\0" + one.tree.encode() + b"\0" for one in added)
    if any(identities := [large.identity, *(one.large.identity for one in added)]):
        text += "\0".join(("", *identities)).encode()  # no folder has an empty name
    return f"{tree}-with-{hashlib.sha256(text).hexdigest()[:16]}" if text else tree


def list_files(
    git: Git, entries: Iterable[TreeEntry], added: AddedTrees = (), large: LargeFiles = NO_LARGE_FILES
) -> Iterator[FileSpec]:
    """The files of a tree to write, then those of the trees that are added. Submodules of the tree are left out.

    Raises: `internal` while an object of Git LFS is read whose bytes are wrong.
    """
    leaves = [e for e in entries if e.mode != GITLINK]
    blobs = stream_blobs(git, [e.oid for e in leaves])
    for entry, blob in zip(leaves, blobs, strict=True):
        yield entry.path, entry.mode, large.open(entry.path, entry.oid) or blob.chunks()
    for one in added:
        for path, mode, content in list_files(one.git, list_tree(one.git, one.tree), large=one.large):
            yield one.folder + b"/" + path, mode, content
