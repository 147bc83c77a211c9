"""Compare files on disk with a tree: contents are compared by git object ids, which are computed here.

A file of Git LFS is equal to its pointer in the tree if its SHA-256 is the one in the pointer.
"""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import dropwhile

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.names import TOO_MANY_NAMES, EntryKind, WalkEntry, WorktreeTooLarge
from sandbox.files.stamps import stamp_of
from sandbox.files.tree import WorktreeFiles, sha256_of_chunks
from sandbox.git.contents import ContentSpool, content_of
from sandbox.git.diff import DiffOutline
from sandbox.git.entries import EXECUTABLE, GITLINK, REGULAR, SYMLINK, Content, RawChange, TreeChange, TreeEntry
from sandbox.git.lfs_pointers import Pointer, read_pointers
from sandbox.git.objects import blob_id
from sandbox.git.process import Git
from sandbox.lazy_dataclass import dataclass
from sandbox.models import Change, ChangeKind
from sandbox.policy.paths import RESERVED_PREFIX, RepoPath, is_dotgit, show_path
from sandbox.workspaces.base_facts import BaseFacts
from sandbox.workspaces.comparison_limits import ComparisonLimits
from sandbox.workspaces.ignore import IgnoreRules

CHANGED_BYTES = 512 * 1024**2
"""Maximum total size of the changed files of one status or commit."""

NESTED_NAMED = 100
"""Most files beside or below a nested `.git` that are named. The others are counted, ignored ones too."""

_TOO_MUCH_HINT = (
    "Remove build output from the worktree, or add it to the repository's ignore rules. `sandbox task clean TASK "
    "--without PATH` leaves out a new directory."
)

_NAMED = 10
_LEFT_OUT_HINT = (
    "No commit can hold some of these names. Copy their files elsewhere, or remove a nested `.git`: the files beside "
    "and below it are then ordinary new ones."
)


@dataclass(frozen=True)
class Changes:
    """The difference from a tree to a worktree. `rejected`: names on disk that cannot be in a tree."""

    tree: tuple[TreeChange, ...]
    shown: tuple[Change, ...]
    rejected: tuple[str, ...]
    before: Mapping[bytes, TreeEntry] = field(default_factory=dict, compare=False)
    """Leaves of the tree at the changed paths."""
    nested_files: int = 0
    """The number of new files beside or below a nested `.git`. `rejected` has the first `NESTED_NAMED` of them."""
    unsaved: tuple[str, ...] = ()
    """The names in `rejected` that exist only here: not ignored ones, those in submodules, nor our temporary files."""

    @property
    def is_clean(self) -> bool:
        """Whether the worktree has no work that would be lost with it. Ignored files are none."""
        return not self.tree and not self.unsaved

    @property
    def unnamed_files(self) -> int:
        """How many files beside or below a nested `.git` are only counted."""
        return max(0, self.nested_files - NESTED_NAMED)

    def list_rejected(self) -> tuple[str, ...]:
        """`rejected` for an answer: the last entry says how many files are not named."""
        more = self.unnamed_files
        return (*self.rejected, f"... and {more} more beside or below a nested .git") if more else self.rejected

    def outline(self) -> DiffOutline:
        """The same changes as the expected difference of two trees."""
        changes = tuple(_as_raw_change(change, self.before.get(change.path)) for change in self.tree)
        sizes = {e.oid: e.size for e in self.before.values() if e.size is not None}
        new = {change.content.oid: change.content.size for change in self.tree if change.content is not None}
        return DiffOutline(changes, {**sizes, **new})


def require_no_unsaved_work(name: str, changes: Changes, *, save_hint: str, delete_hint: str) -> None:
    """Refuse to delete the worktree `name`. `save_hint`: how changes are saved. `delete_hint`: how all is deleted.

    Raises: `dirty_workspace`, which names the changes and what a commit leaves out.
    """
    if changes.is_clean:
        return
    left_out = describe_left_out(changes)
    raise SandboxError(
        ErrorCode.DIRTY_WORKSPACE,
        f"{name} has {'uncommitted changes' if changes.tree else 'files that no commit can hold'}",
        details="; ".join(filter(None, (", ".join(c.path for c in changes.shown[:_NAMED]), left_out))),
        hint=" ".join((*([_LEFT_OUT_HINT] if left_out else []), *([save_hint] if changes.tree else []), delete_hint)),
    )


def describe_left_out(changes: Changes) -> str:
    """What a commit of these changes leaves out, and a deletion would lose; empty if there is none."""
    if not changes.unsaved:
        return ""
    return f"no commit can hold {_join_names(changes.unsaved, len(changes.unsaved) + changes.unnamed_files)}"


def _join_names(names: Sequence[str], count: int) -> str:
    named = ", ".join(names[:_NAMED])
    return f"{named} and {count - _NAMED} more" if count > _NAMED else named


def _as_raw_change(change: TreeChange, before: TreeEntry | None) -> RawChange:
    new_oid = None if change.content is None else change.content.oid
    old_mode, old_oid = (before.mode, before.oid) if before else ("000000", None)
    status = "A" if before is None else "D" if new_oid is None else "M"
    return RawChange(change.path, old_mode, change.mode, old_oid, new_oid, status)


def find_pointers(
    git: Git, facts: BaseFacts, head: Mapping[bytes, TreeEntry], entries: Iterable[WalkEntry]
) -> Mapping[str, Pointer]:
    """The pointers of Git LFS that walked files may stand for, by blob. None for a tree without Git LFS."""
    if not facts.lfs:
        return {}
    leaves = (head.get(entry.path) for entry in entries)
    return read_pointers(git, {leaf.oid for leaf in leaves if leaf is not None and leaf.mode in {REGULAR, EXECUTABLE}})


class Comparison:
    """Collects differences. Raises `quota_exceeded` above `CHANGED_BYTES` of changed content, and past the limits.

    `head`: entries of the tree by path, at least those that the walk can meet. `facts`: of the base tree, which has the
    same submodules. `spool`: holds the contents of the changed files. `pointers`: of Git LFS in the tree, by blob.
    """

    def __init__(
        self,
        files: WorktreeFiles,
        head: Mapping[bytes, TreeEntry],
        facts: BaseFacts,
        spool: ContentSpool,
        limits: ComparisonLimits,
        pointers: Mapping[str, Pointer] | None = None,
    ) -> None:
        self._files = files
        self._pointers = pointers or {}
        self._spool = spool
        self._limits = limits
        self._head = head
        self._gitlinks = facts.gitlink_paths()
        self._oid_length = len(facts.tree)
        self._bytes = 0
        self._names = 0
        self._name_bytes = 0
        self._changes: list[tuple[TreeChange, Change]] = []
        self._rejected: list[bytes] = []
        self._ignored = set[bytes]()
        """Of those that were rejected, such as a pipe that a server leaves."""
        self._nested_files = 0
        self.equal_files: dict[bytes, bytes] = {}
        """Files that are equal to the tree, with their stamp at the time of reading."""

    def compare_entries(self, entries: Collection[WalkEntry], rules: IgnoreRules) -> set[bytes]:
        """Compare walked entries with the tree. Returns the paths on disk that can be in a tree."""
        for entry in entries:
            if entry.kind is EntryKind.REJECTED and entry.path != b".git":
                self._reject(entry.path)
                if not is_dotgit(posixpath.basename(entry.path)) and rules.is_ignored(
                    show_path(entry.path), directory=False
                ):
                    self._ignored.add(entry.path)
        nested = {posixpath.dirname(p) for p in self._rejected if is_dotgit(posixpath.basename(p))} - {b""}
        present: set[bytes] = set()
        for entry in entries:
            tracked = entry.path in self._head
            if entry.kind is EntryKind.REJECTED:
                continue
            if not tracked and is_inside(entry.path, nested):
                self._leave_out(entry.path, rules)
                continue
            if not tracked and rules.is_ignored(show_path(entry.path), directory=False):
                continue
            if is_inside(entry.path, self._gitlinks):
                self._reject(entry.path)  # in a submodule: its files belong to another repository
                continue
            present.add(entry.path)
            self._compare(entry)
        return present

    def add_file(self, entry: TreeEntry, content: Content, sha256: str) -> None:
        """Add a file that is present with the content of another tree's blob."""
        self._add(TreeChange(entry.path, entry.mode, content), _kind(self._head.get(entry.path), entry.mode), sha256)

    def add_deletions(self, paths: Iterable[bytes]) -> None:
        """Add paths of the tree that are not on disk. Submodules are skipped: they are never on disk."""
        for path in paths:
            if self._head[path].mode != GITLINK:
                self._add(TreeChange(path, "000000", None), ChangeKind.DELETED, None)

    def result(self) -> Changes:
        """All differences, sorted by path."""
        ordered = sorted(self._changes, key=lambda pair: pair[0].path)
        rejected = sorted(self._rejected)
        return Changes(
            tree=tuple(t for t, _ in ordered),
            shown=tuple(c for _, c in ordered),
            rejected=tuple(map(show_path, rejected)),
            before={t.path: self._head[t.path] for t, _ in ordered if t.path in self._head},
            nested_files=self._nested_files,
            unsaved=tuple(show_path(path) for path in rejected if self._is_unsaved(path)),
        )

    def _is_unsaved(self, path: bytes) -> bool:
        is_ours = posixpath.basename(path).startswith(RESERVED_PREFIX)
        return not is_ours and path not in self._ignored and not is_inside(path, self._gitlinks)

    def _leave_out(self, path: bytes, rules: IgnoreRules) -> None:
        """A new file beside or below a nested `.git`: it belongs to another repository, and a commit has none of it."""
        if is_inside(path, self._gitlinks):
            return
        if self._nested_files < NESTED_NAMED:  # the rules have a budget: not spent on a large repository
            if rules.is_ignored(show_path(path), directory=False):
                return
            self._reject(path)
        self._nested_files += 1

    def _compare(self, entry: WalkEntry) -> None:
        before = self._head.get(entry.path)
        position = self._spool.position
        loaded = self._load(entry)
        if loaded is None:
            self._reject(entry.path)
            return
        content, mode, stamp = loaded
        sha256 = ""
        if before and mode != SYMLINK and (pointer := self._pointers.get(before.oid)) and content.size == pointer.size:
            sha256 = sha256_of_chunks(content.read())
            if sha256 == pointer.sha256:  # the file that the pointer stands for
                content = replace(content_of(pointer.text, self._oid_length), is_stored=True)
        if before and (before.mode, before.oid) == (mode, content.oid):
            self.equal_files[entry.path] = stamp
            self._spool.rewind(position)
            return
        self._bytes += content.size
        if self._bytes > CHANGED_BYTES:
            raise _too_large_error(f"The changed files are larger than {CHANGED_BYTES} bytes")
        sha256 = sha256 or sha256_of_chunks(content.read())
        self._add(TreeChange(entry.path, mode, content), _kind(before, mode), sha256)

    def _reject(self, path: bytes) -> None:
        self._count_name(path)
        self._rejected.append(path)

    def _count_name(self, path: bytes) -> None:
        self._names += 1
        self._name_bytes += len(path)
        limits = self._limits
        if self._names > limits.changed_files:
            brief = f"The worktree differs from the last commit in more than {limits.changed_files} files"
        elif self._name_bytes > limits.changed_name_bytes:
            brief = f"The paths of the changed files are longer than {limits.changed_name_bytes} bytes together"
        else:
            return
        raise _too_large_error(brief, TOO_MANY_NAMES)

    def _add(self, change: TreeChange, kind: ChangeKind, sha256: str | None) -> None:
        self._count_name(change.path)
        self._changes.append((change, Change(path=show_path(change.path), kind=kind, sha256=sha256)))

    def _load(self, entry: WalkEntry) -> tuple[Content, str, bytes] | None:
        """Content, git mode and stamp. None for a link that leads out of the tree, or if the file is gone."""
        try:
            if entry.kind is EntryKind.SYMLINK:
                target, info = self._files.read_link_with_stat(entry.path)
                may_be = stays_inside(entry.path, target) or self._is_unchanged_link(entry, target)
                return (content_of(target, self._oid_length), SYMLINK, stamp_of(info)) if may_be else None
            with self._files.open_chunks(RepoPath(show_path(entry.path)), CHANGED_BYTES) as (info, chunks):
                if info.st_size > CHANGED_BYTES:
                    name = f"'{show_path(entry.path)[:500]}'"
                    raise _too_large_error(f"{name} has {info.st_size} bytes, and a file may have {CHANGED_BYTES}")
                content = self._spool.add(chunks, info.st_size, self._oid_length)
        except SandboxError as error:
            if error.code in {ErrorCode.UNSAFE_PATH, ErrorCode.NOT_FOUND}:
                return None
            raise
        return content, EXECUTABLE if info.st_mode & stat.S_IXUSR else REGULAR, stamp_of(info)

    def _is_unchanged_link(self, entry: WalkEntry, target: bytes) -> bool:
        before = self._head.get(entry.path)
        return before is not None and (before.mode, before.oid) == (SYMLINK, blob_id(target, self._oid_length))


def _too_large_error(brief: str, reason: str | None = None) -> WorktreeTooLarge:
    return WorktreeTooLarge(ErrorCode.QUOTA_EXCEEDED, brief, hint=_TOO_MUCH_HINT, reason=reason)


def is_inside(path: bytes, folders: Collection[bytes]) -> bool:
    """Whether a parent directory is in `folders`. The cost is the depth: the guest controls the number of folders."""
    while folders and (path := posixpath.dirname(path)):
        if path in folders:
            return True
    return False


def _kind(before: TreeEntry | None, mode: str) -> ChangeKind:
    if before is None:
        return ChangeKind.ADDED
    same_type = (before.mode == SYMLINK) == (mode == SYMLINK) and before.mode != GITLINK
    return ChangeKind.MODIFIED if same_type else ChangeKind.TYPE_CHANGED


def stays_inside(path: bytes, target: bytes) -> bool:
    """Whether a link's target is in the tree and not in `.git`. Allows `..` only at the front: after a name, which may
    be a link itself, it would lead to another place than the text shows.
    """
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    steps = [step for step in target.split(b"/") if step not in {b"", b"."}]
    names = list(dropwhile(lambda step: step == b"..", steps))
    leaves = target.startswith(b"/") or not target or joined.split(b"/")[0] == b".." or b".." in names
    return not leaves and not any(map(is_dotgit, joined.split(b"/")))
