"""Write trees and commits into a bare repository, without a worktree, an index or a hook."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO, TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.diff import diff_trees
from sandbox.git.entries import RawChange, StoredCommit, TreeChange
from sandbox.git.failures import OutOfMemory, describe_storage_failure
from sandbox.git.memory_limits import LARGE
from sandbox.git.objects import hash_object, tree_of
from sandbox.git.process import MOST_LOOSE, Git
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.lazy_pattern import lazy_pattern

if TYPE_CHECKING:
    from sandbox.git.trees import few_commits
else:  # loaded where something is stored (docs/adr/0080)
    few_commits = LazyModule("sandbox.git.trees.few_commits")

_STREAMING = {"core.bigFileThreshold": "1m"}  # larger files are compressed in pieces, not in memory
_PERSON = rb"[^<>\n\0]+ <[^<>\n\0]*> \d{1,10} [+-]\d{4}\n"
_PLAIN_HEADER = lazy_pattern(b"author " + _PERSON + b"committer " + _PERSON)


def build_tree(git: Git, base_commit: str, changes: Iterable[TreeChange]) -> str:
    """Write the tree of `base_commit` with `changes` applied; costs what changed. Returns the tree id.

    A few changes are stored by one process (`few_commits`), others by fast-import, which builds only the trees along
    the changed paths. git's path checks differ between versions, so the stored tree is compared with the request
    afterwards. Raises: `internal` if they differ.
    """
    intended = list(changes)
    few = few_commits.store_changes(git, base_commit, intended) if intended and git.new_objects is None else None
    if few is not None:
        require_intended_changes(few.changes, intended)
        return few.tree
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
    few = (
        few_commits.store_changes(git, parent, changes, partial(_format_commit, parent, text))
        if text.is_plain
        else None
    )
    if few is not None:
        stored, found = StoredCommit(few.commit, few.tree), few.changes
        git.cache.sizes.store({c.content.oid: c.content.size for c in changes if c.content is not None})
    else:
        stored = _run_fast_import(git, parent, changes, text)
        if stored.commit != hash_object(b"commit", _format_commit(parent, text, stored.tree), len(stored.tree)):
            raise SandboxError(
                ErrorCode.INTERNAL, "git stored a different commit than requested", details=stored.commit
            )
        found = tuple(diff_trees(git, parent, stored.commit))
    require_intended_changes(found, changes)
    git.cache.store_difference(tree_of(git, parent), stored.tree, found)
    git.cache.trees.store({stored.commit: stored.tree})
    return stored


@dataclass(frozen=True)
class _CommitText:
    header: bytes
    message: bytes

    @property
    def is_plain(self) -> bool:
        """Whether no git has to judge it: fast-import refuses names and dates that fsck refuses."""
        return _PLAIN_HEADER.fullmatch(self.header) is not None and b"\0" not in self.message


def _format_commit(parent: str, text: _CommitText, tree: str) -> bytes:
    return f"tree {tree}\nparent {parent}\n".encode() + text.header + b"\n" + text.message


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
        raise describe_storage_failure("fast-import", process.code, process.stderr)
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


def fast_import_settings(changes: Iterable[TreeChange]) -> dict[str, str]:
    """Configuration that skips a useless sync: fast-import syncs its pack, then unpacks a small pack and deletes it.

    The loose files, or the pack that is kept, are synced. Pure.
    """
    most = 2 + sum(1 + change.path.count(b"/") for change in changes)  # commit and root; each blob and its directories
    config = {"fastimport.unpackLimit": str(MOST_LOOSE), **_STREAMING}
    if most < MOST_LOOSE:
        config["core.fsync"] = "loose-object,reference,-pack"
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
