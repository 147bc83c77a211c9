"""A workspace that is a directory of this host: the kinds `local`, `ephemeral`, `clone` and `worktree`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.names import EntryKind
from sandbox.files.tree import WorktreeFiles
from sandbox.models import Capability, Change, WorkspaceEntry, WorkspaceKind
from sandbox.policy.paths import (
    RESERVED_PREFIX,
    RepoPath,
    parse_repo_path,
    path_bytes,
    refuse_look_alike,
    refused_path_error,
)
from sandbox.workspaces import folder_files
from sandbox.workspaces.content_limits import require_content
from sandbox.workspaces.held_workspace import always_held, require_open, require_writable


class Folder(Protocol):
    """The directory, and who may change it how. Each call opens it anew, so that it may be moved in between."""

    @property
    def root(self) -> Path: ...

    def open(self) -> AbstractContextManager[WorktreeFiles]:
        """The files, for reading."""

    def parse_writable(self, path: str) -> RepoPath:
        """Validate a path for a change. Raises: `unsafe_path`."""

    def write(self, path: RepoPath, content: bytes, executable: bool | None) -> None:
        """Create or replace a regular file."""

    def remove(self, path: RepoPath) -> None:
        """Delete a file or link."""

    def remove_folder(self, path: RepoPath) -> None:
        """Delete a directory with all that is in it."""


class History(Protocol):
    """What a directory with a git history can do in addition: see `Workspace`."""

    def diff(self) -> list[Change]: ...
    def snapshot(self) -> str: ...
    def restore(self, snapshot: str) -> None: ...
    def commit(self, message: str, author: str | None) -> str: ...
    def read_metadata(self) -> dict[str, str]: ...


def parse_own_path(path: str) -> RepoPath:
    """Validate a path for a change. A name of our temporary files is refused: no walk would show the file; as is one
    that only looks like `..` and the like (THREATS S13).
    """
    checked = parse_repo_path(path)
    for name in path_bytes(checked).split(b"/"):
        if name.startswith(RESERVED_PREFIX):
            raise refused_path_error(checked, "reserved", "the name is reserved for the sandbox's temporary files")
        refuse_look_alike(checked, name)
    return checked


@dataclass(frozen=True)
class OwnFolder:
    """A directory of this user. `lock`: held while it is changed. `parse_writable`: see `Folder`."""

    root: Path
    lock: Callable[[], AbstractContextManager[object]] = nullcontext
    parse_writable: Callable[[str], RepoPath] = parse_own_path

    def open(self) -> WorktreeFiles:
        """See `Folder`."""
        return WorktreeFiles(self.root)

    def write(self, path: RepoPath, content: bytes, executable: bool | None) -> None:
        """See `Folder`."""
        with self.lock(), self.open() as files:
            before = folder_files.require_place_for_file(files, path)
            if executable is None:
                executable = before is EntryKind.FILE and folder_files.is_executable(files, path)
            files.write(path, content, executable=executable, owner=None)

    def remove(self, path: RepoPath) -> None:
        """See `Folder`."""
        with self.lock(), self.open() as files:
            files.remove(path, link=True)

    def remove_folder(self, path: RepoPath) -> None:
        """See `Folder`."""
        with self.lock(), self.open() as files:
            files.remove_directory(path)


@dataclass(eq=False)
class FolderWorkspace:
    """See `Workspace`. `history`: None for a directory without one, which then has no capabilities. `is_held`: false
    once it was released, by whichever process.
    """

    id: str
    kind: WorkspaceKind
    folder: Folder = field(repr=False)
    writable: bool
    history: History | None = field(default=None, repr=False)
    own_metadata: Mapping[str, str] = field(default_factory=dict)
    is_held: Callable[[], bool] = field(default=always_held, repr=False)
    closed: bool = False

    @property
    def root(self) -> Path:
        """See `Workspace`."""
        return self.folder.root

    @property
    def metadata(self) -> Mapping[str, str]:
        """See `Workspace`."""
        return {**self.own_metadata, **(self.history.read_metadata() if self.history else {})}

    @property
    def capabilities(self) -> frozenset[Capability]:
        """See `Workspace`."""
        return frozenset(Capability) if self.history else frozenset()

    def read(self, path: str) -> bytes:
        """See `Workspace`."""
        with self._open() as files:
            return folder_files.read_file(files, parse_repo_path(path))

    def write(self, path: str, content: bytes, *, executable: bool | None = None) -> None:
        """See `Workspace`."""
        self._require_writable()
        checked, whole = self.folder.parse_writable(path), require_content(content)
        with self._open() as files:
            folder_files.require_place_for_file(files, checked)
        self.folder.write(checked, whole, executable)

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """See `Workspace`."""
        self._require_writable()
        if not path:
            raise folder_files.is_directory_error("", "removed")
        checked = self.folder.parse_writable(path)
        with self._open() as files:
            kind = folder_files.require_removable(files, checked, recursive=recursive)
        if kind is EntryKind.DIRECTORY:
            self.folder.remove_folder(checked)
        else:
            self.folder.remove(checked)

    def list(self, path: str = "") -> Sequence[WorkspaceEntry]:
        """See `Workspace`."""
        with self._open() as files:
            return folder_files.list_folder(files, folder_files.parse_folder_path(path))

    def stat(self, path: str) -> WorkspaceEntry:
        """See `Workspace`."""
        with self._open() as files:
            return folder_files.stat_entry(files, parse_repo_path(path)) if path else folder_files.ROOT

    def exists(self, path: str) -> bool:
        """See `Workspace`."""
        try:
            self.stat(path)
        except SandboxError as error:
            if error.code is ErrorCode.NOT_FOUND and error.reason is not None:
                return False
            raise
        return True

    def walk(self, path: str = "") -> Iterator[WorkspaceEntry]:
        """See `Workspace`."""
        with self._open() as files:
            return iter(folder_files.walk_folder(files, folder_files.parse_folder_path(path)))

    def diff(self) -> Sequence[Change]:
        """See `Workspace`."""
        return self._require_history(Capability.DIFF).diff()

    def snapshot(self) -> str:
        """See `Workspace`."""
        return self._require_history(Capability.SNAPSHOT).snapshot()

    def restore(self, snapshot: str) -> None:
        """See `Workspace`."""
        history = self._require_history(Capability.SNAPSHOT)
        self._require_writable()
        history.restore(snapshot)

    def commit(self, message: str, *, author: str | None = None) -> str:
        """See `Workspace`."""
        history = self._require_history(Capability.COMMIT)
        self._require_writable()
        return history.commit(message, author)

    def close(self) -> None:
        """See `Workspace`."""
        self.closed = True

    def _open(self) -> AbstractContextManager[WorktreeFiles]:
        self._require_open()
        return self.folder.open()

    def _require_open(self) -> None:
        require_open(self.id, is_closed=self.closed, is_held=self.is_held)

    def _require_writable(self) -> None:
        self._require_open()
        require_writable(self.id, is_writable=self.writable)

    def _require_history(self, capability: Capability) -> History:
        self._require_open()
        if self.history is None:
            raise SandboxError(
                ErrorCode.INVALID_INPUT,
                f"A workspace of kind {self.kind} has no {capability}",
                hint="The kinds worktree, clone and tree have one.",
            )
        return self.history
