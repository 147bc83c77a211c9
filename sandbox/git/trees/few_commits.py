"""Store a commit, or a tree, with a few changes by one process of git (docs/adr/0171).

Theory. `fast-import` builds the directories and starts a second git that stores the objects; a third, `diff-tree`,
reads them to prove that the stored tree has the requested changes and no other. Here the objects are built as for a
look (`few_changes`), one git stores them, and the proof is made of what is on the disk afterwards: each object is read
back and is byte for byte what it should be, and the directories are then parsed and compared with those of the base, as
`diff-tree` does. What is not plain is left to `fast-import`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from sandbox.git import objects
from sandbox.git.entries import Item, RawChange, TreeChange
from sandbox.git.failures import OutOfMemory
from sandbox.git.process import Git
from sandbox.git.trees.few_changes import DirectoryReader, UnsuitedError, write_objects
from sandbox.git.trees.nodes import oid_of
from sandbox.git.trees.small_packs import SmallPack
from sandbox.git.trees.tree_changes import compare_nodes
from sandbox.git.trees.tree_format import DIRECTORY, EntryBudget, hash_object, parse_tree


class StoredTree(NamedTuple):
    """Ids of what was stored. `changes`: the leaves that differ from the base. `commit`: empty for a tree alone."""

    tree: str
    commit: str
    changes: tuple[RawChange, ...]


def store_changes(
    git: Git, base_commit: str, changes: Sequence[TreeChange], format_commit: Callable[[str], bytes] | None = None
) -> StoredTree | None:
    """Store the tree of `base_commit` with `changes`, and a commit of it. No ref leads to them.

    `format_commit`: from the id of the tree to the content of the commit. None if `fast-import` has to do it: where git
    had too little memory, or a directory is not plain, objects may be stored by then. The caller compares `changes` of
    the result with the request. Raises: `internal` if the stored objects are others; `quota_exceeded` for a full disk.
    """
    if any(change.content is not None and change.content.is_stored for change in changes):
        return None  # `fast-import` looks whether they are
    size = len(base_commit) // 2
    pack = SmallPack(size)
    root = write_objects(git, base_commit, changes, pack)
    if root is None:
        return None
    tree = oid_of(root, size)
    commit = b""
    if format_commit is not None:
        content = format_commit(tree.hex())
        commit = hash_object(b"commit", content, size)
        pack.write(b"commit", content, commit)
    try:
        pack.store(git)
        found = _compare_stored(git, pack, bytes.fromhex(objects.tree_of(git, base_commit)), tree)
    except (OutOfMemory, UnsuitedError):
        return None
    return StoredTree(tree.hex(), commit.hex(), found)


def _compare_stored(git: Git, pack: SmallPack, before: bytes, after: bytes) -> tuple[RawChange, ...]:
    """The leaves in which two directories differ. At most one process of git, for what is not in the cache any more."""
    directories = _StoredDirectories(git, pack, len(before))
    with directories.session():
        return tuple(compare_nodes(directories, Item(DIRECTORY, before), Item(DIRECTORY, after)))


class _StoredDirectories:
    """Directories as they are stored: new ones were just read back, others are read by git."""

    def __init__(self, git: Git, pack: SmallPack, oid_bytes: int) -> None:
        self.oid_bytes = oid_bytes
        self._cache = git.cache.directories
        self._pack = pack
        self._before = DirectoryReader(git)

    def session(self) -> AbstractContextManager[None]:
        """Keep one git process for all reads inside."""
        return self._before.reader.session()

    def tree(self, oid: bytes) -> Mapping[bytes, Item]:
        """The entries of a directory."""
        content = self._pack.get(oid)
        if content is None:
            return self._before.tree(oid)
        entries = parse_tree(content, self.oid_bytes)
        self._cache.store({oid: entries})
        return entries

    def trees(self, oids: Sequence[bytes], budget: EntryBudget) -> Iterator[Mapping[bytes, Item]]:
        """The entries of several directories, one after the other. Raises: `quota_exceeded` past the budget."""
        for oid in oids:
            entries = self.tree(oid)
            budget.spend(len(entries))
            yield entries
