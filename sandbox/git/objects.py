"""Objects of one bare repository: read trees, blobs and commits, by full object id.

No text of a caller becomes a revision expression.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.blobs import missing_object_error, too_large_error
from sandbox.git.entries import EXECUTABLE, PATHS_BYTES, REGULAR, TreeEntry
from sandbox.git.object_cache import MAX_LISTED
from sandbox.git.process import OUTPUT_LIMIT, Git, GitResult
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern
from sandbox.policy.paths import show_path
from sandbox.text import one_line

_OID = lazy_pattern(r"^([0-9a-f]{40}|[0-9a-f]{64})$")
# As git reads it: behind the last `>`, also without a space, and with any time zone (docs/adr/0192).
_COMMITTER = lazy_pattern(rb"^committer [^\n]*>(?: ?(\d{1,11}) )?[^>\n]*$", re.MULTILINE)
_RECORD_BYTES = 16 * 1024  # the path of a file that exists has at most 4,095 bytes
_CACHED_PATH_BYTES = MAX_LISTED * 256
EMPTY_TREES = {
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
"""The id of the tree without entries, by the length of ids."""


@dataclass(frozen=True)
class TreeBudget:
    """The largest tree that we check out to disk. Reached: `quota_exceeded`."""

    files: int = 300_000
    total_bytes: int = 8 * 1024**3
    blob_bytes: int = 512 * 1024**2
    depth: int = 64
    path_bytes: int = PATHS_BYTES


def is_object_id(text: str) -> bool:
    """Whether `text` is a full object id."""
    return _OID.fullmatch(text) is not None


def blob_id(content: bytes, oid_length: int = 40) -> str:
    """The object id of a blob, computed without git."""
    return hash_object(b"blob", content, oid_length)


def hash_object(kind: bytes, content: bytes, oid_length: int) -> str:
    algorithm = _start_hash(kind, len(content), oid_length)
    algorithm.update(content)
    return algorithm.hexdigest()


def _start_hash(kind: bytes, size: int, oid_length: int) -> hashlib._Hash:
    algorithm = hashlib.sha1(usedforsecurity=False) if oid_length == 40 else hashlib.sha256()
    algorithm.update(b"%s %d\0" % (kind, size))
    return algorithm


def hash_chunks(chunks: Iterable[bytes], size: int, oid_length: int) -> str | None:
    """The object id of a blob that is read in chunks. None if it does not have `size` bytes: it changed meanwhile."""
    algorithm = _start_hash(b"blob", size, oid_length)
    left = size
    for chunk in chunks:
        left -= len(chunk)
        algorithm.update(chunk)
    return None if left else algorithm.hexdigest()


def peel(git: Git, oid: str, kind: str) -> str | None:
    """The commit or tree behind a full object id, or None if it is missing or of another kind."""
    if not is_object_id(oid):
        return None
    return parse_object_id(git.attempt("rev-parse", "--verify", "--quiet", "--end-of-options", f"{oid}^{{{kind}}}"))


def parse_object_id(result: GitResult) -> str | None:
    oid = result.stdout.decode().strip()
    return oid if result.code == 0 and is_object_id(oid) else None


def parent_of(git: Git, commit: str) -> str | None:
    """The first parent of a commit given by full id, or None."""
    if not is_object_id(commit):
        return None
    return parse_object_id(git.attempt("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^1"))


def tree_of(git: Git, commit: str) -> str:
    """The tree of a commit. Raises: `not_found`."""
    tree = git.cache.trees.get(commit) or peel(git, commit, "tree")
    if tree is None:
        raise missing_object_error(f"Commit {commit[:12]} is not in the cache clone")
    git.cache.trees.store({commit: tree})
    return tree


def list_tree(git: Git, tree: str, budget: TreeBudget | None = None, *, sizes: bool = True) -> list[TreeEntry]:
    """All leaves of a tree in git's order. Raises: `quota_exceeded` as soon as the budget is exceeded.

    Sizes need the blobs. With `sizes=False` a tree with missing blobs can be listed.
    """
    budget = budget or TreeBudget()
    if sizes and (known := git.cache.listings.get(tree)) is not None:
        return list(_require_within(budget, known))
    with git.stream("ls-tree", "-r", *(["-l"] if sizes else []), "-z", "--full-tree", tree) as process:
        entries = list(_require_within(budget, map(_parse_tree_entry, read_records(process.stdout))))
    if process.code != 0:
        raise missing_object_error(f"Tree {tree[:12]} cannot be read", process.stderr)
    if sizes and len(entries) <= MAX_LISTED and sum(len(entry.path) for entry in entries) <= _CACHED_PATH_BYTES:
        git.cache.listings.store({tree: tuple(entries)})
    return entries


def _require_within(budget: TreeBudget, entries: Iterable[TreeEntry]) -> Iterator[TreeEntry]:
    total = paths = 0
    for number, entry in enumerate(entries):
        total += entry.size or 0
        if number >= budget.files or total > budget.total_bytes:
            raise too_large_error(f"more than {budget.files} files or {budget.total_bytes} bytes")
        if (entry.size or 0) > budget.blob_bytes:
            name = one_line(show_path(entry.path))[:500]
            raise too_large_error(f"'{name}' has {entry.size} bytes, and a file may have {budget.blob_bytes}")
        if entry.path.count(b"/") >= budget.depth:
            raise too_large_error(f"directories deeper than {budget.depth}")
        paths += len(entry.path)
        if paths > budget.path_bytes:
            raise too_large_error(f"paths of more than {budget.path_bytes} bytes")
        yield entry


def read_records(stream: IO[bytes]) -> Iterator[bytes]:
    """The records of git's output with `-z`, while it is read. Raises: `quota_exceeded` for a record that no path of a
    checkout has, or more than `OUTPUT_LIMIT` bytes in all.
    """
    rest, total = b"", 0
    while chunk := stream.read(1 << 16):
        total += len(chunk)
        *whole, rest = (rest + chunk).split(b"\0")
        if len(rest) > _RECORD_BYTES or total > OUTPUT_LIMIT:
            raise too_large_error(f"a path of more than {_RECORD_BYTES} bytes, or all of more than {OUTPUT_LIMIT}")
        yield from whole


def _parse_tree_entry(record: bytes) -> TreeEntry:
    head, path = record.split(b"\t", 1)
    mode, _, oid, size = (*head.split(), b"-")[:4]
    if size == b"BAD":  # ls-tree prints this for a missing object
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"Object {oid[:12].decode()} is missing from the cache clone",
            hint="If it is a partial clone: `sandbox repo materialize` fetches all missing objects.",
        )
    return TreeEntry(path, mode.decode(), oid.decode(), None if size == b"-" else int(size))


def find_blob(git: Git, tree: str, path: bytes) -> str | None:
    """Object id of the regular file at `path`; None for anything else. Reads only the trees along the path."""
    records = git.run("ls-tree", "-z", "--full-tree", tree, "--", os.fsdecode(path)).split(b"\0")
    for record in records[:-1]:
        head, name = record.split(b"\t", 1)
        mode, _, oid = head.decode().split()
        if name == path and mode in {REGULAR, EXECUTABLE}:
            return oid
    return None


def find_tree(git: Git, tree: str, path: bytes) -> str | None:
    """Object id of the directory at `path`; None for anything else. Reads only the trees along the path."""
    for record in git.run("ls-tree", "-z", "--full-tree", tree, "--", os.fsdecode(path)).split(b"\0")[:-1]:
        head, name = record.split(b"\t", 1)
        _, kind, oid = head.decode().split()
        if name == path and kind == "tree":
            return oid
    return None


def list_folders_with(git: Git, tree: str, name: bytes, most: int) -> list[bytes] | None:
    """The directories, at any depth, that hold a regular file of this name, b"" for the tree itself; None if the tree
    has more than `most` files. Raises: `not_found` for a damaged clone; as `read_records`.
    """
    found = []
    with git.stream("ls-tree", "-r", "-z", "--full-tree", tree) as process:
        for count, record in enumerate(read_records(process.stdout)):
            if count >= most:
                return None
            head, path = record.split(b"\t", 1)
            folder, _, last = path.rpartition(b"/")
            if last == name and head.split()[0].decode() in {REGULAR, EXECUTABLE}:
                found.append(folder)
    if process.code != 0:
        raise missing_object_error(f"Tree {tree[:12]} cannot be read", process.stderr)
    return found


def list_named_entries(git: Git, tree: str, paths: Sequence[bytes]) -> list[TreeEntry]:
    """The entries at these paths, with sizes; absent ones are left out. Reads only the trees along the paths."""
    records = git.run("ls-tree", "-l", "-z", "--full-tree", tree, "--", *map(os.fsdecode, paths)).split(b"\0")
    entries = [_parse_tree_entry(record) for record in records[:-1]]
    return [entry for entry in entries if entry.path in paths]


def list_present_commits(git: Git, oids: Iterable[str]) -> frozenset[str]:
    """Those of these ids that the repository has, as commits."""
    asked = "".join(f"{oid}\n" for oid in oids).encode()
    if not asked:
        return frozenset()
    out = git.run("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=asked, deadline_s=600)
    return frozenset(line.split()[0] for line in out.decode().splitlines() if line.endswith(" commit"))


def commit_time(git: Git, commit: str) -> int:
    """When a commit was made, in seconds since 1970, as its committer says: at most now. Raises: `not_found`."""
    return min(stated_time(git, commit), int(time.time()))


def stated_time(git: Git, commit: str) -> int:
    """The time that a commit's committer states, in seconds since 1970; it may lie ahead. 0 for a text that is no time.

    Raises: `not_found`.
    """
    result = git.attempt("cat-file", "commit", commit) if is_object_id(commit) else None
    found = _COMMITTER.search(result.stdout.partition(b"\n\n")[0]) if result and result.code == 0 else None
    if found is None:
        raise missing_object_error(f"Commit {commit[:12]} is not in the cache clone")
    return int(found[1] or 0)


def is_ancestor(git: Git, before: str, after: str) -> bool:
    """Whether `after` has the commit `before` in its history. Both are full ids of commits."""
    return git.attempt("merge-base", "--is-ancestor", before, after).code == 0


def count_commits(git: Git, base: str, head: str) -> int:
    """Number of commits on `head` that `base` does not have."""
    known = git.cache.commit_counts.get((base, head))
    if known is None:
        known = int(git.run("rev-list", "--count", head, f"^{base}"))
        git.cache.commit_counts.store({(base, head): known})
    return known
