"""The file operations of a workspace, on the files of one directory (`sandbox.files.tree`).

They give the errors that `sandbox.workspaces.workspace` promises. A name that no workspace gives access to (`.git`,
special files, hard links of files from outside) is not listed.
"""

from __future__ import annotations

import stat
from dataclasses import replace

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.names import EntryKind, WalkEntry, WalkLimits
from sandbox.files.tree import NO_SUCH_FILE, WorktreeFiles
from sandbox.models import EntryType, WorkspaceEntry
from sandbox.policy.paths import (
    LISTED_PATH_HINT,
    RepoPath,
    list_parents,
    parse_repo_path,
    path_bytes,
    refused_path_error,
    show_path,
)
from sandbox.workspaces.content_limits import READ_BYTES

_TYPES = {
    EntryKind.FILE: EntryType.FILE,
    EntryKind.DIRECTORY: EntryType.DIRECTORY,
    EntryKind.SYMLINK: EntryType.SYMLINK,
}
_FILE, _EXECUTABLE, _LINK, _DIRECTORY = 0o100644, 0o100755, 0o120000, 0o040000
ROOT = WorkspaceEntry("", EntryType.DIRECTORY, _DIRECTORY, 0)


def read_file(files: WorktreeFiles, path: RepoPath) -> bytes:
    """Raises: `not_found`, `invalid_input` for a directory, `unsafe_path` for a link, `quota_exceeded`."""
    if files.kind(path) is EntryKind.DIRECTORY:
        raise is_directory_error(path, "read as a file")
    return files.read(path, READ_BYTES)


def is_executable(files: WorktreeFiles, path: RepoPath) -> bool:
    """Whether the owner may execute a file; it is not read. Raises: `not_found`, `unsafe_path`."""
    with files.open_chunks(path) as (info, _):
        return bool(info.st_mode & stat.S_IXUSR)


def require_place_for_file(files: WorktreeFiles, path: RepoPath) -> EntryKind | None:
    """The kind of what a write would replace. Raises: `invalid_input` for a directory, or a file on the way;
    `unsafe_path` for a link.
    """
    for above in list_parents(path):
        kind = files.kind(above)
        if kind is None:
            return None
        if kind is EntryKind.FILE:
            brief = f"{above} is a file: it has no entries"
            raise SandboxError(ErrorCode.INVALID_INPUT, brief, details=path[:200], hint=LISTED_PATH_HINT)
    kind = files.kind(path)
    if kind is EntryKind.DIRECTORY:
        raise is_directory_error(path, "replaced by a file")
    if kind not in {None, EntryKind.FILE}:
        raise refused_path_error(path, "regular", "not a regular file")
    return kind


def require_removable(files: WorktreeFiles, path: RepoPath, *, recursive: bool) -> EntryKind:
    """The kind of what a remove would delete. Raises: `not_found`; `invalid_input` for a directory, unless
    `recursive`; `unsafe_path` for a special file.
    """
    kind = files.kind(path)
    if kind is None:
        raise no_entry_error(path)
    if kind is EntryKind.DIRECTORY and not recursive:
        raise is_directory_error(path, "removed without `recursive`")
    if kind is EntryKind.REJECTED:
        raise refused_path_error(path, "regular", "not a file, directory or link")
    return kind


def stat_entry(files: WorktreeFiles, path: RepoPath) -> WorkspaceEntry:
    """Raises: `not_found`, `unsafe_path`."""
    raw = path_bytes(path)
    found = next((e for e in files.list_directory(raw.rpartition(b"/")[0]) if e.path == raw), None)
    if found is None or found.kind not in _TYPES:
        raise no_entry_error(path)
    return _as_entry(found)


def list_folder(files: WorktreeFiles, path: str) -> list[WorkspaceEntry]:
    """Direct children, sorted by name. `path`: '' for the root. Raises: `not_found`, also for a file; `unsafe_path`."""
    return [_as_entry(entry) for entry in files.list_directory(path_bytes(path)) if entry.kind in _TYPES]


def walk_folder(files: WorktreeFiles, path: str) -> list[WorkspaceEntry]:
    """Everything below, sorted by the bytes of the paths. Links are not followed.

    Raises: as `list_folder`; `quota_exceeded` past the limits of a walk.
    """
    limits, found, name_bytes, pending = WalkLimits(), list[WalkEntry](), 0, [path_bytes(path)]
    while pending:
        listed = files.list_directory(pending.pop(), replace(limits, entries=limits.entries - len(found)))
        name_bytes += sum(len(entry.path) for entry in listed)
        limits.require(len(found), name_bytes)
        found += (entry for entry in listed if entry.kind in _TYPES)
        pending += (entry.path for entry in listed if entry.kind is EntryKind.DIRECTORY)
    return [_as_entry(entry) for entry in sorted(found, key=lambda entry: entry.path)]


def parse_folder_path(path: str) -> str:
    """A path of a directory, '' for the root. Raises: `unsafe_path`."""
    return parse_repo_path(path) if path else ""


def _as_entry(entry: WalkEntry) -> WorkspaceEntry:
    modes = {EntryKind.DIRECTORY: _DIRECTORY, EntryKind.SYMLINK: _LINK}
    mode = modes.get(entry.kind, _EXECUTABLE if entry.executable else _FILE)
    size = 0 if entry.kind is EntryKind.DIRECTORY else entry.size
    return WorkspaceEntry(show_path(entry.path), _TYPES[entry.kind], mode, size)


def no_entry_error(path: str) -> SandboxError:
    """`not_found` for a path."""
    return SandboxError(ErrorCode.NOT_FOUND, f"There is no entry {path}", hint=LISTED_PATH_HINT, reason=NO_SUCH_FILE)


def is_directory_error(path: str, action: str) -> SandboxError:
    """`invalid_input` for a path that is a directory."""
    return SandboxError(
        ErrorCode.INVALID_INPUT, f"{path or 'The root'} is a directory: it cannot be {action}", hint=LISTED_PATH_HINT
    )
