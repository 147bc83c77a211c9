"""Look up single paths in a tree. The cost depends on the number of paths, not on the size of the tree."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator

from sandbox.git.blobs import missing_object_error
from sandbox.git.entries import GITLINK, TreeEntry
from sandbox.git.objects import is_object_id, read_records
from sandbox.git.process import Git

ARGUMENT_BYTES = 64 * 1024
"""Bytes of names in one command line. The kernel's limit is at least twice that."""

_WHOLE_TREE_BYTES = 8 * ARGUMENT_BYTES
"""With more bytes of names the whole tree is listed once: git compares each name with each entry of a directory."""

_MAX_CACHED_LEAVES = 16  # most leaves below one path that are cached


def find_leaves(git: Git, treeish: str, paths: Iterable[bytes]) -> dict[bytes, TreeEntry]:
    """Leaves of a tree, or of a commit's tree, at these paths and below those that are directories.

    The size of a blob is None if the blob is missing. Earlier answers are cached.
    Raises: `not_found` or another classified error for a tree that cannot be read.
    """
    wanted = set(paths)
    known = {path: kept for path in wanted if (kept := git.cache.leaves.get((treeish, path))) is not None}
    found = {entry.path: entry for kept in known.values() for entry in kept}
    asked = wanted - known.keys()
    below = _list_leaves(git, treeish, asked)
    if is_object_id(treeish):
        git.cache.leaves.store(
            {(treeish, p): tuple(kept) for p, kept in below.items() if len(kept) <= _MAX_CACHED_LEAVES}
        )
    return found | {entry.path: entry for kept in below.values() for entry in kept}


def _list_leaves(git: Git, treeish: str, paths: Collection[bytes]) -> dict[bytes, list[TreeEntry]]:
    """For each requested path the leaves at and below it."""
    found: dict[bytes, list[TreeEntry]] = {path: [] for path in paths}
    lengths = set(map(len, paths))
    many = sum(map(len, paths)) > _WHOLE_TREE_BYTES
    for entry in _list_whole_tree(git, treeish) if many else _list_paths(git, treeish, sorted(paths)):
        for path in _path_and_parents(entry.path, lengths):
            if path in found:
                found[path].append(entry)
    return found


def _list_paths(git: Git, treeish: str, paths: Iterable[bytes]) -> Iterator[TreeEntry]:
    for part in _split_arguments(paths):
        out = git.run("ls-tree", "-r", "-l", "-z", "--full-tree", treeish, "--", *part)
        yield from map(_parse_entry, out.split(b"\0")[:-1])


def _list_whole_tree(git: Git, treeish: str) -> Iterator[TreeEntry]:
    with git.stream("ls-tree", "-r", "-l", "-z", "--full-tree", treeish) as process:
        yield from map(_parse_entry, read_records(process.stdout))
    if process.code != 0:
        raise missing_object_error(f"Tree {treeish[:12]} cannot be read", process.stderr)


def _path_and_parents(path: bytes, lengths: Collection[int]) -> Iterator[bytes]:
    """The directories above a path, and itself, if they have one of these lengths. To build the others would take time
    quadratic in the depth of a hostile tree.
    """
    at = path.find(b"/")
    while at >= 0:
        if at in lengths:
            yield path[:at]
        at = path.find(b"/", at + 1)
    if len(path) in lengths:
        yield path


def find_files(git: Git, treeish: str, paths: Iterable[bytes]) -> dict[bytes, TreeEntry]:
    """Files and links at exactly these paths."""
    wanted = set(paths)
    return {p: e for p, e in find_leaves(git, treeish, wanted).items() if p in wanted and e.mode != GITLINK}


def _parse_entry(record: bytes) -> TreeEntry:
    head, path = record.split(b"\t", 1)
    mode, _, oid, size = head.decode().split()
    return TreeEntry(path, mode, oid, int(size) if size.isdigit() else None)  # '-': a submodule; BAD: missing


def _split_arguments(paths: Iterable[bytes]) -> Iterator[list[str]]:
    part: list[str] = []
    size = 0
    for path in paths:
        if part and size + len(path) > ARGUMENT_BYTES:
            yield part
            part, size = [], 0
        part.append(os.fsdecode(path))
        size += len(path) + 1
    if part:
        yield part
