"""Uncommitted changes of the working directory of a local repository, for `sandbox run DIR`.

Theory. `git status` there would run commands from the repository's configuration, attributes and nested repositories
(THREATS B, C), and the directory may be untrusted. So git is not used: our own walk (files/tree.py) is compared with
the leaves of the commit's tree, which come from the cache clone. Three files of the directory's `.git` are read as
plain bytes, for this answer only. The index: a file that has the stamp of git's last look is not read again, and files
that a filter writes differently (line endings, large file storage) or a sparse checkout omits do not count as changed.
`info/exclude`. The configuration: whether modes are compared. The owner of the repository could hide a change that way,
as from `git status`; the verdict is about the commit in any case.

The time is limited: the files that changed last are compared first, and an incomplete comparison is marked as such.
"""

from __future__ import annotations

import posixpath
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.names import EntryKind, WalkEntry, WalkLimits
from sandbox.files.tree import WorktreeFiles
from sandbox.git.entries import EXECUTABLE, GITLINK, SYMLINK, TreeEntry
from sandbox.git.index import IndexEntry, parse_index
from sandbox.git.objects import blob_id
from sandbox.lazy_dataclass import dataclass
from sandbox.models import ChangeKind, UncommittedChange, UncommittedChanges
from sandbox.policy.paths import RepoPath, parent_folders, show_path
from sandbox.workspaces.changes import is_inside
from sandbox.workspaces.ignore import IgnoreRules

BUDGET_S = 2.0
MAX_NAMED = 10
"""Maximum number of paths in a result; all are counted."""

_LIMITS = WalkLimits(entries=200_000)
_IGNORE_BYTES = 256 * 1024
_MATCHES = 2_000_000  # comparisons of a name with an ignore rule: about a second
_INDEX_BYTES = 48 * 1024**2
_READ_BYTES = 64 * 1024**2
_SMALL = 256 * 1024
_NO_MODES = re.compile(rb"^[ \t]*filemode[ \t]*=[ \t]*(false|no|off|0)[ \t\r]*$", re.IGNORECASE | re.MULTILINE)


def compare_working_directory(
    root: Path, leaves: Sequence[TreeEntry], ignore: Mapping[str, str] | None, budget_s: float = BUDGET_S
) -> UncommittedChanges:
    """Compare the directory with the leaves (with sizes) of its checked-out commit, in at most about `budget_s`.

    `ignore`: text of the commit's `.gitignore` files by directory; other directories have their own. Never raises: if a
    part cannot be read, the result is incomplete.
    """
    deadline = time.monotonic() + budget_s
    try:
        with WorktreeFiles(root.resolve()) as files:
            search = _DirectoryComparison(files, leaves, _load_rules(files, ignore), deadline)
            return search.run()
    except (SandboxError, OSError):
        return UncommittedChanges(count=0, changes=(), complete=False)


def _load_rules(files: WorktreeFiles, ignore: Mapping[str, str] | None) -> IgnoreRules | None:
    """The commit's rules, and with lower precedence those of `info/exclude` (gitignore(5)). None: too large."""
    own = _read_text(files, ".git/info/exclude")
    if ignore is None or len(own) + sum(map(len, ignore.values())) > _IGNORE_BYTES:
        return None
    return IgnoreRules({**ignore, "": f"{own}\n{ignore.get('', '')}"}, budget=_MATCHES)


def _read_text(files: WorktreeFiles, path: str) -> str:
    return _read_small(files, path, _SMALL).decode("utf-8", errors="replace")


def _read_small(files: WorktreeFiles, path: str, cap: int) -> bytes:
    """The content of a regular file; empty if there is none."""
    try:
        return files.read(RepoPath(path), cap)
    except SandboxError:
        return b""


def counts_modes(files: WorktreeFiles) -> bool:
    """Whether the repository's configuration says that modes of files mean something here."""
    return _NO_MODES.search(_read_small(files, ".git/config", _SMALL)) is None


def load_directory_rules(
    files: WorktreeFiles, ignore: Mapping[str, str] | None, artifacts: Iterable[str]
) -> IgnoreRules:
    """The rules of a directory as it is: its `.gitignore` files where the commit has some, and at the top; and those of
    `info/exclude`. `add_rules_of_folder` adds others. Raises: `quota_exceeded` when they are too large.
    """
    folders = {"": "", **(ignore or {})}
    names = {folder: f"{folder}/.gitignore" if folder else ".gitignore" for folder in folders}
    current = {folder: _read_text(files, name) for folder, name in names.items()}
    own = _read_text(files, ".git/info/exclude")
    if ignore is None or len(own) + sum(map(len, current.values())) > _IGNORE_BYTES:
        raise _too_large_error()
    return IgnoreRules({**current, "": f"{own}\n{current['']}"}, artifacts)


def add_rules_of_folder(files: WorktreeFiles, rules: IgnoreRules, folder: bytes) -> None:
    """Add the `.gitignore` of a directory that a walk enters, if its rules are not known: that of a virtual environment
    or a cache is in no commit. Raises: `quota_exceeded` when all together are too large.
    """
    name = show_path(folder)
    text = "" if rules.knows(name) else _read_text(files, f"{name}/.gitignore")
    if text:
        rules.add(name, text)
    if text and rules.characters > _IGNORE_BYTES:
        raise _too_large_error()


def _too_large_error() -> SandboxError:
    return SandboxError(
        ErrorCode.QUOTA_EXCEEDED,
        f"The directory's .gitignore files are larger than {_IGNORE_BYTES} bytes",
        hint="Commit the changes, and run the check on the commit.",
    )


def is_git_of_tracked(path: bytes, tracked: Collection[bytes]) -> bool:
    """Whether this is the `.git` of the directory itself, or of a folder with tracked files: git passes over both, and
    treats the folder like any other. A source distribution has the latter when it was packed with a submodule.
    """
    folder, _, name = path.rpartition(b"/")
    return name == b".git" and (not folder or folder in tracked)


@dataclass(frozen=True)
class GitIndex:
    """The entries of git's index. `written_ns`: a file changed at or after this time may have an unchanged stamp."""

    entries: Mapping[bytes, IndexEntry]
    written_ns: int

    @classmethod
    def of(cls, files: WorktreeFiles, oid_length: int) -> GitIndex:
        try:
            content, info = files.read_with_stat(RepoPath(".git/index"), _INDEX_BYTES)
        except SandboxError:
            return cls({}, 0)
        return cls(parse_index(content, oid_length), info.st_mtime_ns)

    def proves_equal(self, leaf: TreeEntry, entry: WalkEntry) -> bool:
        """Whether the index proves that this file has the content of this leaf."""
        seen = self.entries.get(entry.path)
        if seen is None or seen.oid != leaf.oid or entry.times_ns[0] >= self.written_ns:
            return False
        return (seen.mtime_ns, seen.ctime_ns) == entry.times_ns and seen.size == entry.size % 2**32

    def is_skipped(self, path: bytes) -> bool:
        """Whether a sparse checkout leaves this path out."""
        seen = self.entries.get(path)
        return seen is not None and seen.skipped


class _OutOfTimeError(Exception):
    pass


class _DirectoryComparison:
    def __init__(
        self, files: WorktreeFiles, leaves: Sequence[TreeEntry], rules: IgnoreRules | None, deadline: float
    ) -> None:
        self._files, self._rules, self._deadline = files, rules, deadline
        self._leaves = {leaf.path: leaf for leaf in leaves if leaf.mode != GITLINK}
        self._gitlinks = {leaf.path for leaf in leaves if leaf.mode == GITLINK}
        self._folders = parent_folders(leaf.path for leaf in leaves)
        self._oid_length = len(leaves[0].oid) if leaves else 40
        self._with_modes = counts_modes(files)
        self._found: dict[bytes, ChangeKind] = {}
        self._unreadable: set[bytes] = set()
        self._complete = True

    def run(self) -> UncommittedChanges:
        seen = GitIndex.of(self._files, self._oid_length)
        try:
            there = self._walk(seen)
            self._note_missing(there, seen)
        except (_OutOfTimeError, SandboxError):
            self._complete = False
        ordered = sorted(self._found.items(), key=lambda item: (item[1] is ChangeKind.ADDED, item[0]))
        named = tuple(UncommittedChange(path=show_path(path), kind=kind) for path, kind in ordered[:MAX_NAMED])
        return UncommittedChanges(count=len(ordered), changes=named, complete=self._complete)

    def _walk(self, seen: GitIndex) -> set[bytes]:
        """Compare all entries on disk. Returns the paths of leaves among them."""
        there: set[bytes] = set()
        unsure: list[tuple[WalkEntry, TreeEntry]] = []
        for entry in self._files.walk(self._is_pruned, _LIMITS):
            self._require_time()
            leaf = self._leaves.get(entry.path)
            if leaf is None:
                self._note_untracked(entry)
                continue
            there.add(entry.path)
            if not seen.proves_equal(leaf, entry) or self._mode_differs(entry, leaf):
                unsure.append((entry, leaf))
        self._read(unsure)
        return there

    def _is_pruned(self, folder: bytes) -> bool:
        """Whether the walk skips a directory: submodules, ignored ones, and those already reported as a whole."""
        if folder in self._gitlinks:
            return True
        if folder not in self._folders:
            reported = self._untracked_root(folder + b"/") in self._found
            if reported or self._is_ignored(folder, directory=True):
                return True
        self._add_rules(folder)
        return False

    def _add_rules(self, folder: bytes) -> None:
        if self._rules is not None:
            try:
                add_rules_of_folder(self._files, self._rules, folder)
            except SandboxError:
                self._rules, self._complete = None, False

    def _is_ignored(self, path: bytes, *, directory: bool = False) -> bool:
        """Whether a path is ignored. If there are too many rules, all untracked files count as ignored."""
        if self._rules is not None:
            try:
                return self._rules.is_ignored(show_path(path), directory=directory)
            except SandboxError:
                self._rules = None
        self._complete = False
        return True

    def _note_untracked(self, entry: WalkEntry) -> None:
        """Record as `git status` does: no special files, and a directory without tracked files as one entry."""
        path = entry.path
        if entry.kind is EntryKind.REJECTED:
            if path in self._folders:
                self._unreadable.add(path)
                self._complete = False
            if posixpath.basename(path) != b".git" or is_git_of_tracked(path, self._folders):
                return
        if is_inside(path, self._gitlinks) or self._is_ignored(path):
            return
        self._found[self._untracked_root(path)] = ChangeKind.ADDED

    def _untracked_root(self, path: bytes) -> bytes:
        """The highest parent directory without leaves, with a slash at the end; else the path itself."""
        names = path.split(b"/")
        for depth in range(1, len(names)):
            folder = b"/".join(names[:depth])
            if folder not in self._folders:
                return folder + b"/"
        return path

    def _read(self, unsure: Iterable[tuple[WalkEntry, TreeEntry]]) -> None:
        """Compare contents, those that changed last first: the time may not be enough for all."""
        for entry, leaf in sorted(unsure, key=lambda pair: pair[0].times_ns[1], reverse=True):
            self._require_time()
            if kind := self._kind_of_change(entry, leaf):
                self._found[entry.path] = kind

    def _kind_of_change(self, entry: WalkEntry, leaf: TreeEntry) -> ChangeKind | None:
        expected_kind = EntryKind.SYMLINK if leaf.mode == SYMLINK else EntryKind.FILE
        if entry.kind is not expected_kind:
            return ChangeKind.TYPE_CHANGED
        if self._mode_differs(entry, leaf) or not self._same_content(entry, leaf):
            return ChangeKind.MODIFIED
        return None

    def _mode_differs(self, entry: WalkEntry, leaf: TreeEntry) -> bool:
        is_file = entry.kind is EntryKind.FILE and leaf.mode != SYMLINK
        return is_file and self._with_modes and entry.executable != (leaf.mode == EXECUTABLE)

    def _same_content(self, entry: WalkEntry, leaf: TreeEntry) -> bool:
        """Whether the contents are equal. CRLF and LF are equal: git converts them if it is configured to."""
        try:
            if entry.kind is EntryKind.SYMLINK:
                return blob_id(self._files.read_link(entry.path), self._oid_length) == leaf.oid
            if entry.size < (leaf.size or 0) or entry.size > 2 * (leaf.size or 0):
                return False
            if entry.size > _READ_BYTES:
                self._complete = False
                return entry.size == leaf.size
            content = self._files.read(RepoPath(show_path(entry.path)), _READ_BYTES)
        except SandboxError:  # it was removed or replaced meanwhile
            return False
        if blob_id(content, self._oid_length) == leaf.oid:
            return True
        return b"\r\n" in content and blob_id(content.replace(b"\r\n", b"\n"), self._oid_length) == leaf.oid

    def _note_missing(self, there: set[bytes], seen: GitIndex) -> None:
        for path in self._leaves.keys() - there:
            if not seen.is_skipped(path) and not is_inside(path, self._unreadable):
                self._found[path] = ChangeKind.DELETED

    def _require_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise _OutOfTimeError
