"""A workspace of kind `tree`: the current one of a series of tree values, without files on disk (docs/adr/0096)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import sha256_of_chunks
from sandbox.git.entries import RawChange
from sandbox.git.trees.tree_value import TreeEntryInfo, TreeValue
from sandbox.models import Capability, Change, ChangeKind, EntryType, WorkspaceEntry, WorkspaceKind
from sandbox.policy.paths import parse_repo_path, show_path
from sandbox.workspaces.content_limits import READ_BYTES, require_content
from sandbox.workspaces.held_workspace import always_held, require_open, require_writable

_TYPES = {
    0o100644: EntryType.FILE,
    0o100755: EntryType.FILE,
    0o120000: EntryType.SYMLINK,
    0o160000: EntryType.SUBMODULE,
    0o040000: EntryType.DIRECTORY,
}
_KINDS = {
    "A": ChangeKind.ADDED,
    "M": ChangeKind.MODIFIED,
    "D": ChangeKind.DELETED,
    "R": ChangeKind.RENAMED,
    "T": ChangeKind.TYPE_CHANGED,
}


@dataclass(frozen=True)
class KeptTree:
    """What is kept of a tree beyond this process, as it was read or written last: the content, and the commits of its
    refs, None for one that it has not.
    """

    value: TreeValue
    branch: str | None
    working: str | None


@dataclass(eq=False)
class TreeState:
    """The value that all workspace objects of one id share, and its lock. `kept`: None for a tree without a record."""

    value: TreeValue
    kept: KeptTree | None = None
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)


@dataclass(frozen=True)
class TreeKeeper:
    """What keeps a tree beyond this process. `commit`: message and author to a commit on the branch of the workspace.

    `snapshot`: stores the content, with a ref to it. `save`: the same for what was written last.
    """

    snapshot: Callable[[TreeValue], str]
    commit: Callable[[TreeValue, str, str | None], TreeValue]
    save: Callable[[TreeValue], None]


def _keep_nothing(value: TreeValue) -> None:
    del value


def _refuse_commit(value: TreeValue, message: str, author: str | None) -> TreeValue:
    raise SandboxError(ErrorCode.INVALID_INPUT, "This tree has no branch to commit to")


UNKEPT = TreeKeeper(TreeValue.snapshot, _refuse_commit, _keep_nothing)
"""For a tree without a record: its snapshots have no ref, so they are kept for a day."""


@dataclass(eq=False)
class TreeWorkspace:
    """See `Workspace`. What was written is in memory until a snapshot, a commit or `close`. Thread-safe.

    `parse_writable`: validates a path for a change by the rules of its repository. `is_held`: as of `FolderWorkspace`.
    """

    id: str
    state: TreeState = field(repr=False)
    writable: bool = True
    keeper: TreeKeeper = field(default=UNKEPT, repr=False)
    parse_writable: Callable[[str], str] = field(default=parse_repo_path, repr=False)
    own_metadata: Mapping[str, str] = field(default_factory=dict)
    is_held: Callable[[], bool] = field(default=always_held, repr=False)
    closed: bool = False

    kind = WorkspaceKind.TREE
    root: Path | None = None
    capabilities = frozenset(Capability)

    @property
    def metadata(self) -> Mapping[str, str]:
        """See `Workspace`."""
        return {**self.own_metadata, "git.commit": self.state.value.base_commit}

    @property
    def value(self) -> TreeValue:
        """The current value: hold it to keep the content of now. Raises: `conflict` after `close`."""
        self._require_open()
        return self.state.value

    def read(self, path: str) -> bytes:
        """See `Workspace`."""
        return self.value.read(path, READ_BYTES)

    def write(self, path: str, content: bytes, *, executable: bool | None = None) -> None:
        """See `Workspace`."""
        self._change(path, lambda value: value.write(path, require_content(content), executable=executable))

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """See `Workspace`."""
        self._change(path, lambda value: value.remove(path, recursive=recursive))

    def list(self, path: str = "") -> Sequence[WorkspaceEntry]:
        """See `Workspace`."""
        return [_as_entry(entry) for entry in self.value.list(path)]

    def stat(self, path: str) -> WorkspaceEntry:
        """See `Workspace`."""
        return _as_entry(self.value.stat(path))

    def exists(self, path: str) -> bool:
        """See `Workspace`."""
        return self.value.exists(path)

    def walk(self, path: str = "") -> Iterator[WorkspaceEntry]:
        """See `Workspace`."""
        return map(_as_entry, self.value.walk(path))

    def diff(self) -> Sequence[Change]:
        """See `Workspace`."""
        value = self.value
        with value.store.session():
            return [_as_change(value, change) for change in value.diff()]

    def snapshot(self) -> str:
        """See `Workspace`."""
        return self.keeper.snapshot(self.value)

    def restore(self, snapshot: str) -> None:
        """See `Workspace`."""
        self._change(None, lambda value: value.restore(snapshot))

    def commit(self, message: str, *, author: str | None = None) -> str:
        """See `Workspace`."""
        self._change(None, lambda value: self.keeper.commit(value, message, author))
        return self.value.base_commit

    def close(self) -> None:
        """See `Workspace`. What was written is stored, so that the next `acquire` finds it."""
        if not self.closed:
            self.closed = True
            if self.writable:
                with self.state.lock:
                    self.keeper.save(self.state.value)

    def _change(self, path: str | None, change: Callable[[TreeValue], TreeValue]) -> None:
        self._require_open()
        require_writable(self.id, is_writable=self.writable)
        if path:
            self.parse_writable(path)
        with self.state.lock:
            self.state.value = change(self.state.value)

    def _require_open(self) -> None:
        require_open(self.id, is_closed=self.closed, is_held=self.is_held)


def _as_entry(entry: TreeEntryInfo) -> WorkspaceEntry:
    return WorkspaceEntry(entry.path, _TYPES[entry.mode], entry.mode, entry.size or 0)


def _as_change(value: TreeValue, change: RawChange) -> Change:
    before = None if change.old_path is None else show_path(change.old_path)
    content = value.stream_raw(change.path)
    sha256 = None if content is None else sha256_of_chunks(content)
    return Change(path=show_path(change.path), kind=_KINDS[change.status], old_path=before, sha256=sha256)
