"""Look single paths up in a tree: costs what is asked, not what the tree holds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from sandbox.git.objects import GITLINK, TreeEntry
from sandbox.git.process import Git

ARGUMENT_BYTES = 64 * 1024
"""Of names that one command line takes; the kernel's own limit is at least twice that."""


def look_up(git: Git, treeish: str, paths: Iterable[bytes]) -> dict[bytes, TreeEntry]:
    """Leaves of a tree, or of a commit's, at these paths and below those that are directories; without sizes.

    Raises: `not_found` and the like for a tree that cannot be read.
    """
    found: dict[bytes, TreeEntry] = {}
    for part in _argument_lists(sorted(paths)):
        out = git.run("ls-tree", "-r", "-z", "--full-tree", treeish, "--", *part)
        found |= {entry.path: entry for entry in map(_entry, out.split(b"\0")[:-1])}
    return found


def files_at(git: Git, treeish: str, paths: Iterable[bytes]) -> dict[bytes, TreeEntry]:
    """Files and links at exactly these paths."""
    wanted = set(paths)
    return {p: e for p, e in look_up(git, treeish, wanted).items() if p in wanted and e.mode != GITLINK}


def _entry(record: bytes) -> TreeEntry:
    head, path = record.split(b"\t", 1)
    mode, _, oid = head.decode().split()
    return TreeEntry(path, mode, oid, None)


def _argument_lists(paths: Iterable[bytes]) -> Iterator[list[str]]:
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
