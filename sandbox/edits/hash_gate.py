"""Nothing is edited that the writer has not seen: expected hashes, and what an edit does to a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import WorktreeFiles, sha256_of
from sandbox.policy.paths import RepoPath, check_path


@dataclass(frozen=True)
class FileState:
    """One file before or after an edit; `content` None: absent."""

    content: bytes | None
    executable: bool = False

    @property
    def sha256(self) -> str | None:
        return None if self.content is None else sha256_of(self.content)


ABSENT = FileState(None)


@dataclass(frozen=True)
class Absence:
    """What is known of a path where there is no file: it was there before, or others that may be meant."""

    was_there: bool = False
    near: tuple[str, ...] = ()


@dataclass(frozen=True)
class Edit:
    """One file an edit touches, on both sides. `source`: where a rename or copy took it from."""

    path: RepoPath
    before: FileState
    after: FileState
    source: RepoPath | None = None


@dataclass(frozen=True)
class Outcome:
    """What an edit does when published. `adjusted`: what was read other than it was written."""

    edits: tuple[Edit, ...]
    adjusted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gate:
    """The files as they are, and who may say what about them.

    `writable` accepts a path or refuses it by policy. `left_by` names the edit of ours that left a file with this hash
    (None: absent); empty when there is none. `absence`: of a path that was expected to be a file, and is none.
    """

    files: WorktreeFiles
    writable: Callable[[str], RepoPath] = check_path
    left_by: Callable[[RepoPath, str | None], str] = lambda _path, _sha256: ""
    absence: Callable[[RepoPath], Absence] = lambda _path: Absence()

    def states(self, expected: Mapping[str, str | None]) -> dict[RepoPath, FileState]:
        """The files named, if each may be written and has the hash expected; None: it must not exist.

        All paths are looked at before any file is read. Raises: `unsafe_path`, `not_found`, `stale_hash`,
        `quota_exceeded`.
        """
        checked = {self.writable(path): sha256 for path, sha256 in expected.items()}
        return {path: self._state(path, sha256) for path, sha256 in checked.items()}

    def state(self, path: str, expected: str | None) -> tuple[RepoPath, FileState]:
        """One file with its path."""
        ((checked, state),) = self.states({path: expected}).items()
        return checked, state

    def _state(self, path: RepoPath, expected: str | None) -> FileState:
        state = current_state(self.files, path)
        if state.sha256 == expected:
            return state
        edit = self.left_by(path, state.sha256)
        who = f"another edit: {edit}" if edit else "no edit of this task: its container, a restore, or the repository"
        if state.content is None:
            absence = self.absence(path)
            raise _deletion_error(path, expected, who) if edit or absence.was_there else no_such_file(path, absence)
        raise SandboxError(
            ErrorCode.STALE_HASH,
            f"{path} is not what you last read",
            details=f"expected {expected or 'no file'}, current {state.sha256}\nit was left by {who}",
            hint="Read the file again and make the edit on its current content.",
            reason="exists" if expected is None else "changed",
            data={"path": path, "expected_sha256": expected, "current_sha256": state.sha256},
        )


def _deletion_error(path: RepoPath, expected: str | None, who: str) -> SandboxError:
    return SandboxError(
        ErrorCode.STALE_HASH,
        f"{path} was deleted since you read it",
        details=f"expected {expected}, current no file\nit was deleted by {who}",
        hint="To make it again, write it without an expected hash.",
        reason="deleted",
        data={"path": path, "expected_sha256": expected},
    )


def no_such_file(path: str, absence: Absence, hint: str = "") -> SandboxError:
    """`not_found`, with what is known of the path."""
    near = f"Did you mean: {', '.join(absence.near)}?" if absence.near else ""
    return SandboxError(
        ErrorCode.NOT_FOUND,
        f"There is no file {path}",
        details="It is in the task's last commit, or was made by an edit, and is gone." if absence.was_there else near,
        hint=hint or "To make a new file, write it without an expected hash.",
        reason="deleted" if absence.was_there else "no_such_file",
        data={"path": path, "did_you_mean": list(absence.near)},
    )


def current_state(files: WorktreeFiles, path: RepoPath) -> FileState:
    """A regular file or its absence. Raises: `unsafe_path` for anything else, `quota_exceeded`."""
    try:
        return FileState(*files.read_with_mode(path))
    except SandboxError as error:
        if error.code is ErrorCode.NOT_FOUND:
            return ABSENT
        raise


def rejected(
    brief: str, details: str = "", hint: str = "", *, reason: str | None = None, data: Mapping[str, Any] | None = None
) -> SandboxError:
    """The edit cannot be made as it is written; nothing was."""
    return SandboxError(
        ErrorCode.PATCH_REJECTED,
        brief,
        details=details[:2000],
        hint=hint or "Nothing was written. Read the files and try again.",
        reason=reason,
        data=data,
    )
