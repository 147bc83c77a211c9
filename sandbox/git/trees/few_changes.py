"""Apply a few changes to the tree of a commit without git writing anything.

A look at a task asks again and again which tree its files are. git answers with two processes: `fast-import` builds the
tree, `diff-tree` proves that it is the requested one. Here the directories along the changed paths are read once by
`cat-file`, kept, and hashed with their new entries. What is not plain is left to git: many changes, large directories,
names that git may refuse, files in the place of directories. A commit and a snapshot, which are kept, are written by
git from the same objects (`few_commits`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import objects
from sandbox.git.entries import SYMLINK, Content, Item, TreeChange
from sandbox.git.process import Git
from sandbox.git.trees.nodes import Folder, ObjectWriter, find_node, is_folder, list_new, oid_of, replace_node
from sandbox.git.trees.object_reader import ObjectReader
from sandbox.git.trees.small_packs import SmallPack
from sandbox.git.trees.tree_format import DIRECTORY, hash_object, is_refused_name, parse_tree

MOST_CHANGES = 64
MOST_BYTES = 1024**2
"""Contents that are stored. Reached: git stores them."""
MOST_TREE_BYTES = 32 * 1024
"""The largest directory that is read, about 800 names. Reached: git is faster."""


def compute_tree_id(git: Git, base_commit: str, changes: Sequence[TreeChange]) -> str | None:
    """The id of the tree of `base_commit` with `changes`; None if git has to build it. No object is stored."""
    root = apply_changes(git, base_commit, changes)
    return None if root is None else oid_of(root, _oid_bytes(base_commit)).hex()


def store_tree(aside: Git, base_commit: str, changes: Sequence[TreeChange]) -> str | None:
    """As `compute_tree_id`; also stores what is new, for a git of `scratch_objects`."""
    if aside.new_objects is None:
        raise ValueError("objects that are kept are written by git")
    size = _oid_bytes(base_commit)
    pack = SmallPack(size)
    root = write_objects(aside, base_commit, changes, pack)
    if root is None:
        return None
    pack.place(aside.new_objects)
    return oid_of(root, size).hex()


def write_objects(git: Git, base_commit: str, changes: Sequence[TreeChange], writer: ObjectWriter) -> Folder | None:
    """Give `writer` what is new: files, then directories, the root last. Returns the root.

    None, without writing, if git has to do it. Raises: `internal` if a file's content is not that of its id.
    """
    contents = [c.content for c in changes if c.content is not None and not c.content.is_stored]
    if sum(content.size for content in contents) > MOST_BYTES:
        return None
    root = apply_changes(git, base_commit, changes)
    if root is not None:
        for content in contents:
            _write_content(writer, content)
        for node in list_new(root):
            node.write(writer, _oid_bytes(base_commit))
    return root


def _write_content(writer: ObjectWriter, content: Content) -> None:
    data, oid = b"".join(content.read()), bytes.fromhex(content.oid)
    if hash_object(b"blob", data, len(oid)) != oid:
        raise SandboxError(ErrorCode.INTERNAL, "A file's content changed while it was read", details=content.oid)
    writer.write(b"blob", data, oid)


def _oid_bytes(oid: str) -> int:
    return len(oid) // 2


class UnsuitedError(Exception):
    """git has to do it."""


def apply_changes(git: Git, base_commit: str, changes: Sequence[TreeChange]) -> Folder | None:
    """The root of `base_commit` with `changes`; None if git has to build it."""
    if len(changes) > MOST_CHANGES:
        return None
    root: Folder = Item(DIRECTORY, bytes.fromhex(objects.tree_of(git, base_commit)))
    directories = DirectoryReader(git)
    try:
        with directories.reader.session():
            for change in sorted(changes, key=lambda change: change.content is not None):  # deletions first
                root = _apply_one(directories, root, change)
    except UnsuitedError:
        return None
    return root


def _apply_one(directories: DirectoryReader, root: Folder, change: TreeChange) -> Folder:
    names = change.path.split(b"/")
    if any(map(is_refused_name, names)) or (change.mode == SYMLINK and _is_git_file(names[-1])):
        raise UnsuitedError
    for depth in range(1, len(names) + 1):
        found = find_node(directories, root, names[:depth])
        is_last = depth == len(names)
        if found is None:
            break
        if is_folder(found) == is_last:  # a directory at the path, or a file above it
            raise UnsuitedError
    else:
        if change.content is None:
            return replace_node(directories, root, names, None)
    if change.content is None:
        return root
    return replace_node(directories, root, names, Item(int(change.mode, 8), bytes.fromhex(change.content.oid)))


def _is_git_file(name: bytes) -> bool:
    """Whether git may refuse a link of this name, such as `.gitmodules` in any of its spellings."""
    return not name.isascii() or b"git" in name.lower()


class DirectoryReader:
    """Directories of a repository, read once by one git."""

    def __init__(self, git: Git) -> None:
        self._kept = git.cache.directories
        self.reader = ObjectReader(git)

    def tree(self, oid: bytes) -> Mapping[bytes, Item]:
        """The entries of a directory. Raises: `UnsuitedError` for a large one."""
        known = self._kept.get(oid)
        if known is None:
            known = self._read(oid)
            self._kept.store({oid: known})
        if not known:
            raise UnsuitedError
        return known

    def _read(self, oid: bytes) -> Mapping[bytes, Item]:
        """Empty for a directory that is large, or that git has to judge."""
        try:
            (content,) = self.reader.contents([oid.hex()], b"tree", MOST_TREE_BYTES)
            return {} if content is None else parse_tree(content, len(oid))
        except SandboxError as error:
            if error.code in {ErrorCode.QUOTA_EXCEEDED, ErrorCode.UNSAFE_REPOSITORY}:
                return {}
            raise
