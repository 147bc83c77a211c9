"""Workspaces as file systems of fsspec (docs/filesystems.md).

`sandbox+tree://REPOSITORY@REF/path` is a tree without files on disk; `sandbox+task://TASK/path` is a task, and its
changes go through the same locks, rules and journal as any edit. git has no empty directories: making one has no
effect. Links are named, never followed.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from fsspec.spec import AbstractFileSystem

from sandbox import Workbench
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import EntryType, WorkspaceEntry, WorkspaceKind, WorkspaceRequest
from sandbox.workspaces.content_limits import WRITE_BYTES
from sandbox.workspaces.workspace import Workspace

_TYPES = {EntryType.FILE: "file", EntryType.DIRECTORY: "directory"}
_ERRORS: dict[ErrorCode, type[OSError]] = {
    ErrorCode.NOT_FOUND: FileNotFoundError,
    ErrorCode.UNSAFE_PATH: PermissionError,
    ErrorCode.POLICY_VIOLATION: PermissionError,
}


class WorkspaceFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no annotations
    """The files of one workspace. Paths are relative to its root, with or without a leading slash.

    Errors of paths are those of Python (FileNotFoundError, IsADirectoryError, PermissionError), others `SandboxError`.
    """

    root_marker = ""
    protocol: ClassVar[str | tuple[str, ...]] = "sandbox+workspace"

    def __init__(self, workspace: Workspace, **options: Any) -> None:
        super().__init__(**options)
        self.workspace = workspace

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        """The path in the workspace: what stands before the first slash of a URL names the workspace."""
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = str(path)
        for protocol in (cls.protocol,) if isinstance(cls.protocol, str) else cls.protocol:
            if text.startswith(f"{protocol}://"):
                text = text.removeprefix(f"{protocol}://").partition("/")[2]
        return text.strip("/")

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        """Entries of a directory, or the one of a file. Raises: FileNotFoundError."""
        path = self._strip_protocol(path)
        with _translate_errors(path):
            known = self._find(path)
            is_file = known is not None and known.type is not EntryType.DIRECTORY
            found = [_describe(known)] if known and is_file else list(map(_describe, self.workspace.list(path)))
        return found if detail else [entry["name"] for entry in found]

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        """Name, type, size and git's mode. Raises: FileNotFoundError."""
        path = self._strip_protocol(path)
        with _translate_errors(path):
            found = self._find(path)
        return {"name": "", "type": "directory", "size": 0} if found is None else _describe(found)

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **options: Any
    ) -> Any:
        """All files below a path, from one walk."""
        path = self._strip_protocol(path)
        if maxdepth is not None or not self.isdir(path):
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **options)
        with _translate_errors(path):
            listed = [_describe(entry) for entry in self.workspace.walk(path)]
        found = {entry["name"]: entry for entry in listed if withdirs or entry["type"] != "directory"}
        if withdirs and path:
            found = {path: self.info(path), **found}
        return found if detail else list(found)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        """Content of a file, or a part of it."""
        path = self._strip_protocol(path)
        with _translate_errors(path):
            return self.workspace.read(path)[start:end]

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        """Write a file. `mode`: with `create` an existing one is FileExistsError."""
        path = self._strip_protocol(path)
        if mode == "create" and self.exists(path):
            raise FileExistsError(path)
        with _translate_errors(path):
            self.workspace.write(path, bytes(value))

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        """Copy a file with its mode. A directory needs no copy: it exists with its first file."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        found = self.info(source)
        if found["type"] == "directory":
            return
        with _translate_errors(source):
            self.workspace.write(target, self.workspace.read(source), executable=found["mode"] == 0o100755)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Delete files, and with `recursive` directories."""
        for one in [path] if isinstance(path, str) else path:
            for found in self.expand_path(one, maxdepth=maxdepth) if maxdepth or "*" in one else [one]:
                self._remove(self._strip_protocol(found), recursive=recursive)

    def _rm(self, path: str) -> None:
        self._remove(self._strip_protocol(path), recursive=False)

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        """No effect: a directory exists with its first file."""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """No effect, as `mkdir`."""

    def rmdir(self, path: str) -> None:
        """Raises: OSError for a directory, which has files: an empty one does not exist."""
        if self.isdir(path):
            raise OSError(f"Directory not empty: {path}")

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> io.BytesIO:
        path = self._strip_protocol(path)
        if mode == "rb":
            return io.BytesIO(self.cat_file(path))
        if mode not in {"wb", "ab", "xb"}:
            raise ValueError(f"mode {mode!r} is not one of rb, wb, ab, xb")
        if mode == "xb" and self.exists(path):
            raise FileExistsError(path)
        before = self.cat_file(path) if mode == "ab" and self.exists(path) else b""
        return _WrittenFile(self, path, before, autocommit=autocommit)

    def _find(self, path: str) -> WorkspaceEntry | None:
        return self.workspace.stat(path) if path else None

    def _remove(self, path: str, *, recursive: bool) -> None:
        with _translate_errors(path):
            self.workspace.remove(path, recursive=recursive)


class TreeFileSystem(WorkspaceFileSystem):
    """`sandbox+tree://REPOSITORY@REF/path`. Changes are kept by `workspace.snapshot()`, `commit()` or `close()`."""

    protocol = "sandbox+tree"

    def __init__(
        self,
        hint: str | None = None,
        *,
        home: str | None = None,
        tenant: str = "",
        workspace: Workspace | None = None,
        **options: Any,
    ) -> None:
        """`hint`: REPOSITORY@REF. `home`: of the controller, None: the default. `workspace`: one at hand instead."""
        request = WorkspaceRequest(hint=hint, tenant=tenant)
        super().__init__(workspace or Workbench(home).acquire_workspace(WorkspaceKind.TREE, request), **options)

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        return {"hint": _name_of(path)} if "://" in path else {}


class TaskFileSystem(WorkspaceFileSystem):
    """`sandbox+task://TASK/path`: the worktree of a task. Each write is an edit of it, with its rules and journal."""

    protocol = "sandbox+task"

    def __init__(
        self, task_id: str = "", *, home: str | None = None, workspace: Workspace | None = None, **options: Any
    ) -> None:
        """`home`: of the controller; the default one if None. `workspace`: one at hand instead."""
        super().__init__(workspace or Workbench(home).open_task_workspace(task_id), **options)

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        return {"task_id": _name_of(path)} if "://" in path else {}


def _name_of(url: str) -> str:
    """What stands before the first slash of a URL."""
    return url.partition("://")[2].partition("/")[0]


class _WrittenFile(io.BytesIO):
    """A file that is being written: in memory until it is closed."""

    def __init__(self, fs: WorkspaceFileSystem, path: str, before: bytes, *, autocommit: bool) -> None:
        super().__init__()
        self._fs = fs
        self.path = path
        self._autocommit = autocommit
        self.write(before)

    def write(self, data: Any) -> int:
        """Raises: `quota_exceeded` past `WRITE_BYTES`."""
        if self.tell() + memoryview(data).nbytes > WRITE_BYTES:
            raise SandboxError(ErrorCode.QUOTA_EXCEEDED, f"A file may have {WRITE_BYTES} bytes")
        return super().write(data)

    def commit(self) -> None:
        """Write the file; called at the end of a transaction."""
        self._fs.pipe_file(self.path, self.getvalue())

    def discard(self) -> None:
        """Drop what was written."""

    def close(self) -> None:
        """Write the file, unless a transaction will."""
        if not self.closed and self._autocommit:
            self.commit()
        if self._autocommit:
            super().close()


def _describe(entry: WorkspaceEntry) -> dict[str, Any]:
    kind = _TYPES.get(entry.type, "other")
    return {
        "name": entry.path,
        "type": kind,
        "size": entry.size,
        "mode": entry.mode,
        "islink": entry.type is EntryType.SYMLINK,
    }


@contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    try:
        yield
    except SandboxError as error:
        if error.code is ErrorCode.INVALID_INPUT and "directory" in error.brief:
            raise IsADirectoryError(f"{path}: {error.brief}") from error
        if error.code in _ERRORS:
            raise _ERRORS[error.code](f"{path}: {error.brief}") from error
        raise
