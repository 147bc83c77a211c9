"""Worktrees: a task's files on disk, and what changed in them against a commit.

git never looks at these paths: changed files are found by our own walk, compared with git's object ids computed here,
and handed to git as bytes.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.checkout import FileSpec, check_out
from sandbox.files.mask import write_mask
from sandbox.files.tree import Entry, EntryKind, WorktreeFiles, sha256_of
from sandbox.git.objects import (
    EXECUTABLE,
    GITLINK,
    REGULAR,
    SYMLINK,
    TreeChange,
    TreeEntry,
    blob_id,
    list_tree,
    read_blobs,
)
from sandbox.git.process import Git
from sandbox.models import Change, ChangeKind
from sandbox.policy.paths import RepoPath, is_dotgit, show_path
from sandbox.workspaces.ignore import IGNORE_BYTES, IgnoreRules

CHANGED_BYTES = 512 * 1024**2
"""Most bytes of changed files one status or commit looks at."""


@dataclass(frozen=True)
class Changes:
    """A worktree against a tree: what to do to the tree to get the worktree, and names that can never be in one."""

    tree: tuple[TreeChange, ...]
    shown: tuple[Change, ...]
    rejected: tuple[str, ...]


def lay_out(git: Git, tree: str, root: Path, owner: tuple[int, int] | None, mask: bytes) -> int:
    """Check a tree out into the new directory `root`, with our constant `.git` file. Returns the number of files.

    Raises: `quota_exceeded` before anything is written when the tree is too large.
    """
    count = check_out(root, file_specs(git, list_tree(git, tree)), owner)
    write_mask(root, mask)
    return count


def file_specs(git: Git, entries: Iterable[TreeEntry]) -> Iterator[FileSpec]:
    """What to write for the leaves of a tree; submodules are left out."""
    leaves = [e for e in entries if e.mode != GITLINK]
    contents = read_blobs(git, [e.oid for e in leaves])
    for entry, content in zip(leaves, contents, strict=True):
        yield entry.path, entry.mode, content


def base_ignore_rules(git: Git, entries: Iterable[TreeEntry], artifacts: Iterable[str]) -> IgnoreRules:
    """The `.gitignore` files of a tree as rules. Raises: `quota_exceeded`."""
    found = [e for e in entries if posixpath.basename(e.path) == b".gitignore" and e.mode != SYMLINK]
    if sum(e.size or 0 for e in found) > IGNORE_BYTES:
        raise SandboxError(
            ErrorCode.QUOTA_EXCEEDED, f"The repository's .gitignore files hold more than {IGNORE_BYTES} bytes"
        )
    texts = [c.decode("utf-8", errors="replace") for c in read_blobs(git, [e.oid for e in found])]
    folders = [show_path(posixpath.dirname(e.path)) for e in found]
    return IgnoreRules(dict(zip(folders, texts, strict=True)), artifacts)


def find_changes(files: WorktreeFiles, head: Mapping[bytes, TreeEntry], rules: IgnoreRules) -> Changes:
    """Walk the worktree and compare it with a tree. Cost: every file is read once; build output is not entered."""
    entries = list(files.walk(_prune(head, rules)))
    rejected = [e.path for e in entries if e.kind is EntryKind.REJECTED and e.path != b".git"]
    nested = {posixpath.dirname(p) for p in rejected if is_dotgit(posixpath.basename(p))} - {b""}
    links = {path for path, e in head.items() if e.mode == GITLINK}
    comparison = _Comparison(files, head)
    present: set[bytes] = set()
    for entry in entries:
        if entry.kind is EntryKind.REJECTED:
            continue
        tracked = entry.path in head
        if not tracked and (_inside(entry.path, nested) or rules.ignored(show_path(entry.path), directory=False)):
            continue
        if _inside(entry.path, links):
            rejected.append(entry.path)  # the commit records a submodule here: its files are another repository's
            continue
        present.add(entry.path)
        comparison.look_at(entry)
    comparison.missing(path for path, e in head.items() if path not in present and e.mode != GITLINK)
    shown = sorted([*rejected, *comparison.rejected])
    return comparison.result(tuple(show_path(p) for p in shown))


def _prune(head: Mapping[bytes, TreeEntry], rules: IgnoreRules) -> _Prune:
    folders: set[bytes] = set()
    for path in head:
        folder = posixpath.dirname(path)
        while folder and folder not in folders:
            folders.add(folder)
            folder = posixpath.dirname(folder)
    return _Prune(frozenset(folders), rules)


@dataclass(frozen=True)
class _Prune:
    """Directories a walk does not enter: ignored ones that hold nothing tracked."""

    tracked_folders: frozenset[bytes]
    rules: IgnoreRules

    def __call__(self, path: bytes) -> bool:
        return path not in self.tracked_folders and self.rules.ignored(show_path(path), directory=True)


def _inside(path: bytes, folders: set[bytes]) -> bool:
    """Whether any directory above is one of these. Costs the depth: the guest decides how many there are."""
    while folders and (path := posixpath.dirname(path)):
        if path in folders:
            return True
    return False


class _Comparison:
    """Collects differences; refuses to hold more than `CHANGED_BYTES` of changed content."""

    def __init__(self, files: WorktreeFiles, head: Mapping[bytes, TreeEntry]) -> None:
        self._files = files
        self._head = head
        self._oid_length = len(next(iter(head.values())).oid) if head else 40
        self._bytes = 0
        self._changes: list[tuple[TreeChange, Change]] = []
        self.rejected: list[bytes] = []

    def look_at(self, entry: Entry) -> None:
        before = self._head.get(entry.path)
        loaded = self._load(entry)
        if loaded is None:
            self.rejected.append(entry.path)
            return
        content, mode = loaded
        if before and (before.mode, before.oid) == (mode, blob_id(content, self._oid_length)):
            return
        self._bytes += len(content)
        if self._bytes > CHANGED_BYTES:
            raise SandboxError(
                ErrorCode.QUOTA_EXCEEDED,
                f"Changed files hold more than {CHANGED_BYTES} bytes",
                hint="Remove build output from the worktree or have the repository ignore it.",
            )
        self._add(TreeChange(entry.path, mode, content), _kind(before, mode))

    def missing(self, paths: Iterable[bytes]) -> None:
        for path in paths:
            self._add(TreeChange(path, "000000", None), ChangeKind.DELETED)

    def result(self, rejected: tuple[str, ...]) -> Changes:
        ordered = sorted(self._changes, key=lambda pair: pair[0].path)
        return Changes(tuple(t for t, _ in ordered), tuple(c for _, c in ordered), rejected)

    def _add(self, change: TreeChange, kind: ChangeKind) -> None:
        sha256 = None if change.content is None else sha256_of(change.content)
        self._changes.append((change, Change(path=show_path(change.path), kind=kind, sha256=sha256)))

    def _load(self, entry: Entry) -> tuple[bytes, str] | None:
        """Content and git mode, or None for a link that leads out of the tree or a file that is no file any more."""
        try:
            if entry.kind is EntryKind.SYMLINK:
                target = self._files.link_target(entry.path)
                return (target, SYMLINK) if _stays_inside(entry.path, target) or self._known(entry, target) else None
            content, executable = self._files.read_with_mode(RepoPath(show_path(entry.path)), CHANGED_BYTES)
        except SandboxError as error:
            if error.code in {ErrorCode.UNSAFE_PATH, ErrorCode.NOT_FOUND}:
                return None
            raise
        return content, EXECUTABLE if executable else REGULAR

    def _known(self, entry: Entry, target: bytes) -> bool:
        before = self._head.get(entry.path)
        return before is not None and (before.mode, before.oid) == (SYMLINK, blob_id(target, self._oid_length))


def _kind(before: TreeEntry | None, mode: str) -> ChangeKind:
    if before is None:
        return ChangeKind.ADDED
    same_type = (before.mode == SYMLINK) == (mode == SYMLINK) and before.mode != GITLINK
    return ChangeKind.MODIFIED if same_type else ChangeKind.TYPE_CHANGED


def _stays_inside(path: bytes, target: bytes) -> bool:
    """Whether a link leads into the tree, and not to `.git`. '..' only at the front: after a name, which may be a link
    itself, it would mean another place than the text says.
    """
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    steps = [step for step in target.split(b"/") if step not in {b"", b"."}]
    names = list(dropwhile(lambda step: step == b"..", steps))
    leaves = target.startswith(b"/") or not target or joined.split(b"/")[0] == b".." or b".." in names
    return not leaves and not any(map(is_dotgit, joined.split(b"/")))
