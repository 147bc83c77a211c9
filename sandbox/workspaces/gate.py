"""Nothing is edited that the writer has not seen: expected hashes, and what an edit does to a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

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
    (None: absent); empty when there is none.
    """

    files: WorktreeFiles
    writable: Callable[[str], RepoPath] = check_path
    left_by: Callable[[RepoPath, str | None], str] = lambda _path, _sha256: ""

    def states(self, expected: Mapping[str, str | None]) -> dict[RepoPath, FileState]:
        """The files named, if each may be written and has the hash expected; None: it must not exist.

        All paths are looked at before any file is read. Raises: `unsafe_path`, `stale_hash`, `quota_exceeded`.
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
        raise SandboxError(
            ErrorCode.STALE_HASH,
            f"{path} is not what you last read",
            details=f"expected {expected or 'no file'}, current {state.sha256 or 'no file'}\nit was left by {who}",
            hint="Read the file again and make the edit on its current content.",
        )


def current_state(files: WorktreeFiles, path: RepoPath) -> FileState:
    """A regular file or its absence. Raises: `unsafe_path` for anything else, `quota_exceeded`."""
    try:
        return FileState(*files.read_with_mode(path))
    except SandboxError as error:
        if error.code is ErrorCode.NOT_FOUND:
            return ABSENT
        raise


def rejected(brief: str, details: str = "", hint: str = "") -> SandboxError:
    """The edit cannot be made as it is written; nothing was."""
    return SandboxError(
        ErrorCode.PATCH_REJECTED,
        brief,
        details=details[:2000],
        hint=hint or "Nothing was written. Read the files and try again.",
    )
