"""Objects and refs of one bare repository: read trees and blobs, build trees and commits, move refs.

Objects are named by full object id, refs by full name. No text of a caller becomes a revision expression.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, NamedTuple

from sandbox.errors import DISK_FULL, DISK_FULL_HINT, ErrorCode, SandboxError
from sandbox.git.blobs import missing_object_error, too_large_error
from sandbox.git.diff import diff_trees
from sandbox.git.entries import EXECUTABLE, REGULAR, RawChange, TreeChange, TreeEntry
from sandbox.git.failures import OutOfMemory, classify
from sandbox.git.memory_limits import LARGE
from sandbox.git.object_cache import MAX_LISTED
from sandbox.git.process import Git, GitResult
from sandbox.git.ref_files import read_ref_file
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern

_OID = lazy_pattern(r"^([0-9a-f]{40}|[0-9a-f]{64})$")
_COMMITTER = lazy_pattern(rb"^committer [^\n]*> (\d{1,11}) [+-]\d{4}$", re.MULTILINE)
_REF = lazy_pattern(r"^[A-Za-z0-9_][A-Za-z0-9_.+@#%=-]*(/[A-Za-z0-9_][A-Za-z0-9_.+@#%=-]*)*$")
MAX_REF_LENGTH = 244
EMPTY_TREES = {
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
"""The id of the tree without entries, by the length of ids."""

_REF_FORMAT = "%(refname) %(objecttype) %(objectname) %(tree)"
_STREAMING = {"core.bigFileThreshold": "1m"}  # larger files are compressed in pieces, not in memory
_LOOSE_OBJECTS = 100
"""With more objects fast-import keeps a pack. git's own default."""


@dataclass(frozen=True)
class TreeBudget:
    """The largest tree that we check out to disk. Reached: `quota_exceeded`."""

    files: int = 300_000
    total_bytes: int = 8 * 1024**3
    blob_bytes: int = 512 * 1024**2
    depth: int = 64


class StoredCommit(NamedTuple):
    """Ids of a commit that was written, and of its tree."""

    commit: str
    tree: str


def require_ref_name(name: str) -> str:
    """Return a branch or tag name if it matches our grammar, which is stricter than git's. Raises: `invalid_input`."""
    parts = name.split("/")
    bad = any(p.endswith((".", ".lock")) or ".." in p or "@{" in p or p == "@" for p in parts)
    if len(name) > MAX_REF_LENGTH or bad or not _REF.fullmatch(name):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "The branch or tag name is not valid",
            details=ascii(name[:100]),
            hint="Use letters, digits, '.', '_', '-' and '/'; no revision expressions. `git rev-parse` prints the id "
            "of a commit, which can be given instead.",
        )
    return name


def is_object_id(text: str) -> bool:
    """Whether `text` is a full object id."""
    return _OID.fullmatch(text) is not None


def blob_id(content: bytes, oid_length: int = 40) -> str:
    """The object id of a blob, computed without git."""
    return _hash_object(b"blob", content, oid_length)


def _hash_object(kind: bytes, content: bytes, oid_length: int) -> str:
    algorithm = _start_hash(kind, len(content), oid_length)
    algorithm.update(content)
    return algorithm.hexdigest()


def _start_hash(kind: bytes, size: int, oid_length: int) -> hashlib._Hash:
    algorithm = hashlib.sha1(usedforsecurity=False) if oid_length == 40 else hashlib.sha256()
    algorithm.update(b"%s %d\0" % (kind, size))
    return algorithm


def hash_chunks(chunks: Iterable[bytes], size: int, oid_length: int = 40) -> str | None:
    """The object id of a blob that is read in chunks. None if it does not have `size` bytes: it changed meanwhile."""
    algorithm = _start_hash(b"blob", size, oid_length)
    left = size
    for chunk in chunks:
        left -= len(chunk)
        algorithm.update(chunk)
    return None if left else algorithm.hexdigest()


def resolve_ref(git: Git, full_name: str) -> str | None:
    """The object id of a full ref name, or None.

    Does not use rev-parse: it completes names, so a remote's tag `refs/remotes/origin/x` could pass for the branch.
    """
    return _parse_object_id(git.attempt("show-ref", "--verify", "--hash", "--", full_name))


def resolve_ref_to_commit(git: Git, full_name: str) -> str | None:
    """The commit behind a full ref name, or None. One process where the ref names a commit, whose tree it also finds;
    none for a commit that was seen before.

    `full_name` has no characters of patterns: `require_ref_name`.
    """
    known = read_ref_file(git.git_dir, full_name)
    if known and git.cache.trees.get(known):  # it is the id of a commit
        return known
    listed = git.attempt("for-each-ref", f"--format={_REF_FORMAT}", full_name)
    if listed.code != 0:  # a missing object, of this ref or of one below it
        oid = resolve_ref(git, full_name)
        return peel(git, oid, "commit") if oid else None
    for line in listed.stdout.decode().splitlines():
        name, kind, oid, tree = line.split(" ")
        if name == full_name and kind == "commit":
            git.cache.trees.store({oid: tree})
            return oid
        if name == full_name:
            return peel(git, oid, "commit")
    return None


def peel(git: Git, oid: str, kind: str) -> str | None:
    """The commit or tree behind a full object id, or None if it is missing or of another kind."""
    if not is_object_id(oid):
        return None
    return _parse_object_id(git.attempt("rev-parse", "--verify", "--quiet", "--end-of-options", f"{oid}^{{{kind}}}"))


def _parse_object_id(result: GitResult) -> str | None:
    oid = result.stdout.decode().strip()
    return oid if result.code == 0 and is_object_id(oid) else None


def parent_of(git: Git, commit: str) -> str | None:
    """The first parent of a commit given by full id, or None."""
    if not is_object_id(commit):
        return None
    return _parse_object_id(git.attempt("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^1"))


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
    if sizes and len(entries) <= MAX_LISTED:
        git.cache.listings.store({tree: tuple(entries)})
    return entries


def _require_within(budget: TreeBudget, entries: Iterable[TreeEntry]) -> Iterator[TreeEntry]:
    total = 0
    for number, entry in enumerate(entries):
        total += entry.size or 0
        if number >= budget.files or total > budget.total_bytes:
            raise too_large_error(f"more than {budget.files} files or {budget.total_bytes} bytes")
        if (entry.size or 0) > budget.blob_bytes:
            raise too_large_error(f"a file of {entry.size} bytes")
        if entry.path.count(b"/") >= budget.depth:
            raise too_large_error(f"directories deeper than {budget.depth}")
        yield entry


def read_records(stream: IO[bytes]) -> Iterator[bytes]:
    """The records of git's output with `-z`, while it is read."""
    rest = b""
    while chunk := stream.read(1 << 16):
        *whole, rest = (rest + chunk).split(b"\0")
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
    has more than `most` files. Raises: `not_found` for a damaged clone.
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


def commit_time(git: Git, commit: str) -> int:
    """When a commit was made, in seconds since 1970, as its committer says: at most now. Raises: `not_found`."""
    return min(stated_time(git, commit), int(time.time()))


def stated_time(git: Git, commit: str) -> int:
    """The time that a commit's committer states, in seconds since 1970; it may lie ahead. Raises: `not_found`."""
    result = git.attempt("cat-file", "commit", commit) if is_object_id(commit) else None
    found = _COMMITTER.search(result.stdout.partition(b"\n\n")[0]) if result and result.code == 0 else None
    if found is None:
        raise missing_object_error(f"Commit {commit[:12]} is not in the cache clone")
    return int(found[1])


def build_tree(git: Git, base_commit: str, changes: Iterable[TreeChange]) -> str:
    """Write the tree of `base_commit` with `changes` applied; costs what changed. Returns the tree id.

    fast-import builds only the trees along the changed paths. git's path checks differ between versions, so the
    result is compared with the request afterwards. Raises: `internal` if they differ.
    """
    intended = list(changes)
    tree = build_uncompared_tree(git, base_commit, intended)
    if intended:
        require_intended_changes(diff_trees(git, base_commit, tree), intended)
    return tree


def build_uncompared_tree(git: Git, base_commit: str, changes: Sequence[TreeChange]) -> str:
    """As `build_tree`, for a caller that itself compares the tree with `base_commit` (`require_intended_changes`)."""
    if not changes:
        return tree_of(git, base_commit)
    return _run_fast_import(git, base_commit, changes, _PLACEHOLDER_TEXT).tree


def build_commit(
    git: Git, parent: str, changes: Sequence[TreeChange], message: str, identity: Mapping[str, str]
) -> StoredCommit:
    """Write a commit on `parent` with `changes`: no hook, no signature, unchanged message.

    `identity`: GIT_AUTHOR_* and GIT_COMMITTER_*. Verified like `build_tree`. Raises: `internal`.
    """
    text = _commit_text(message, identity)
    stored = _run_fast_import(git, parent, changes, text)
    commit, tree = stored
    if commit != _hash_object(
        b"commit", f"tree {tree}\nparent {parent}\n".encode() + text.header + b"\n" + text.message, len(tree)
    ):
        raise SandboxError(ErrorCode.INTERNAL, "git stored a different commit than requested", details=commit)
    found = diff_trees(git, parent, commit)
    require_intended_changes(found, changes)
    git.cache.store_difference(tree_of(git, parent), tree, found)
    git.cache.trees.store({commit: tree})
    return stored


@dataclass(frozen=True)
class _CommitText:
    header: bytes
    message: bytes


_PLACEHOLDER_TEXT = _CommitText(b"committer sandbox <sandbox@localhost> 0 +0000\n", b"")


def _commit_text(message: str, identity: Mapping[str, str]) -> _CommitText:
    def line(who: str) -> str:
        name, email, date = (identity[f"GIT_{who}_{field}"] for field in ("NAME", "EMAIL", "DATE"))
        return f"{who.lower()} {name} <{email}> {date}\n"

    return _CommitText((line("AUTHOR") + line("COMMITTER")).encode(), message.encode())


def _run_fast_import(git: Git, base: str, changes: Sequence[TreeChange], text: _CommitText) -> StoredCommit:
    """Run fast-import. No ref points to the stored objects."""
    try:
        answer = _feed_fast_import(git, base, changes, text)
    except OutOfMemory:
        answer = _feed_fast_import(git.with_memory(LARGE), base, changes, text)
    _, _, tree, *_, commit = answer.decode().split()
    git.cache.sizes.store({c.content.oid: c.content.size for c in changes if c.content is not None})
    return StoredCommit(commit, tree)


def _feed_fast_import(git: Git, base: str, changes: Sequence[TreeChange], text: _CommitText) -> bytes:
    """Write the stream into a pipe: on disk the contents would need their space twice. Returns what git printed."""
    ref = f"refs/sandbox/building/{secrets.token_hex(8)}"
    env = fast_import_settings(changes) if git.new_objects is None else _SCRATCH_SETTINGS
    reads, writes = os.pipe()
    with (
        os.fdopen(reads, "rb") as stdin,
        _closing_pipe(writes) as pipe,
        git.stream("fast-import", "--quiet", "--done", stdin=stdin, env=env, deadline_s=600) as process,
    ):
        stdin.close()  # else a write after the end of git would wait for ever
        with suppress(BrokenPipeError):  # git ended early; its exit code and stderr say why
            pipe.writelines(_import_stream(ref, base, changes, text))
            pipe.close()
        answer = process.read_all(1 << 20)
    if process.code != 0:
        raise _storage_error(process.code, process.stderr)
    return answer


@contextmanager
def _closing_pipe(fd: int) -> Iterator[IO[bytes]]:
    """The end of a pipe to write to. Unlike a plain `with`, without an error for text that is not read any more."""
    pipe = os.fdopen(fd, "wb")
    try:
        yield pipe
    finally:
        with suppress(BrokenPipeError):
            pipe.close()


def _storage_error(code: int, stderr: str) -> SandboxError:
    found = classify("fast-import", code, stderr)
    if found.code is ErrorCode.INTERNAL:
        return SandboxError(ErrorCode.INTERNAL, "git could not store the changed files", details=found.details)
    return found


def fast_import_settings(changes: Iterable[TreeChange]) -> dict[str, str]:
    """Configuration that skips a useless sync: fast-import syncs its pack, then unpacks a small pack and deletes it.

    The loose files are as durable as those of any git command. A pack that is kept is synced. Pure.
    """
    most = 2 + sum(1 + change.path.count(b"/") for change in changes)  # commit and root; each blob and its directories
    config = {"fastimport.unpackLimit": str(_LOOSE_OBJECTS), **_STREAMING}
    if most < _LOOSE_OBJECTS:
        config["core.fsync"] = "-pack"
    return as_environment(config)


def as_environment(config: Mapping[str, str]) -> dict[str, str]:
    """Variables that give git more configuration (git-config(1), GIT_CONFIG_COUNT)."""
    settings = {"GIT_CONFIG_COUNT": str(len(config))}
    for number, (key, value) in enumerate(config.items()):
        settings |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return settings


_SCRATCH_SETTINGS = as_environment({"fastimport.unpackLimit": "0", "core.fsync": "none", **_STREAMING})
"""For objects that are deleted soon (`scratch_objects`): leave them in their pack, which saves a process, unsynced."""


def _import_stream(ref: str, base: str, changes: Sequence[TreeChange], text: _CommitText) -> Iterator[bytes]:
    for mark, change in enumerate(changes, 1):
        if change.content is not None and not change.content.is_stored:
            yield b"blob\nmark :%d\ndata %d\n" % (mark, change.content.size)
            yield from change.content.read()
            yield b"\n"
    ours = len(changes) + 1
    yield b"commit %s\nmark :%d\n%sdata %d\n" % (ref.encode(), ours, text.header, len(text.message))
    yield text.message + b"\nfrom %s\n" % base.encode()
    for change in changes:
        if change.content is None:
            yield b"D " + _quote_path(change.path) + b"\n"
    for mark, change in enumerate(changes, 1):
        if change.content is not None:
            blob = change.content.oid if change.content.is_stored else f":{mark}"
            yield b"M %s %s %s\n" % (change.mode.encode(), blob.encode(), _quote_path(change.path))
    yield b'ls ""\n\nget-mark :%d\n' % ours
    # Reset the branch before fast-import writes it: then no ref is left to delete, also after a crash.
    yield f"reset {ref}\nfrom {'0' * len(base)}\n\ndone\n".encode()


def _quote_path(path: bytes) -> bytes:
    plain = set(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+ ")
    return b'"' + b"".join(bytes([b]) if b in plain else b"\\%03o" % b for b in path) + b'"'


def require_intended_changes(found: Iterable[RawChange], changes: Iterable[TreeChange]) -> None:
    """Compare the leaves in which a new tree differs from its base with the requested changes.

    Raises: `internal` if they differ.
    """
    done = {c.path: (c.new_mode, c.new_oid) for c in found}
    for change in changes:
        if change.content is not None:
            wanted = (change.mode, change.content.oid)
            if done.pop(change.path, wanted) != wanted:
                raise _unintended_error(change.path)
        elif done.pop(change.path, ("000000", None)) != ("000000", None):
            raise _unintended_error(change.path)
    # Writing a/b where a file a was, or the reverse, removes paths that were not requested.
    if done:
        raise _unintended_error(next(iter(done)))


def _unintended_error(path: bytes) -> SandboxError:
    return SandboxError(ErrorCode.INTERNAL, "git stored a different tree than requested", details=ascii(path))


def commit_tree(git: Git, tree: str, parents: str | Sequence[str], message: str, identity: Mapping[str, str]) -> str:
    """Write a commit: no hook, no signature, unchanged message. `identity`: GIT_AUTHOR_* and GIT_COMMITTER_*."""
    named = (parents,) if isinstance(parents, str) else parents
    options = [word for parent in named for word in ("-p", parent)]
    return git.run("commit-tree", tree, *options, "-F", "-", stdin=message.encode(), env=identity).decode().strip()


def move_ref(git: Git, full_name: str, new: str, old: str) -> None:
    """Compare-and-swap of a ref. Raises: `conflict` if the ref is no longer at `old`; `quota_exceeded`."""
    result = git.attempt("update-ref", "--no-deref", full_name, new, old)
    if result.code != 0:
        raise _ref_error(git, full_name, result.stderr)


def rename_ref(git: Git, old_name: str, new_name: str, target: str) -> None:
    """Delete a ref that points to `target`, and create another one there, in one step. Raises: as `move_ref`."""
    steps = f"option no-deref\ncreate {new_name} {target}\noption no-deref\ndelete {old_name} {target}\n"
    result = git.attempt("update-ref", "--stdin", stdin=steps.encode())
    if result.code != 0:
        raise _ref_error(git, new_name, result.stderr)


def _ref_error(git: Git, full_name: str, stderr: str) -> SandboxError:
    _require_free_space(git, stderr)
    return SandboxError(
        ErrorCode.CONFLICT,
        f"{full_name} was changed by another process",
        details=stderr[:1000],
        hint="Check the task's status and repeat the operation.",
    )


def _require_free_space(git: Git, stderr: str) -> None:
    """git does not say why it could not write a ref. Raises: `quota_exceeded` if no disk space is left."""
    room = os.statvfs(git.git_dir)
    if not room.f_bavail or (room.f_files and not room.f_favail):
        raise SandboxError(ErrorCode.QUOTA_EXCEEDED, DISK_FULL, details=stderr[:1000], hint=DISK_FULL_HINT)


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
