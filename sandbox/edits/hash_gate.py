"""The hash gate: an edit is accepted only on content that the caller has read. Also the models of an edit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import NO_SUCH_FILE, READ_CAP, sha256_of
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern
from sandbox.policy.paths import LISTED_PATH_HINT, RepoPath, parse_repo_path

GATED_BYTES = 64 * 1024**2
"""Maximum total size of the files that one edit names: they are in memory at the same time."""

MOST_FILES = 10_000
"""Files that one edit names. Each is looked at under the task's lock: 100,000 took 16 seconds."""

_HASH = lazy_pattern(r"sha256:[0-9a-f]{64}")
_NO_HASH = "`expected_sha256` null (`--expect absent` on the command line)"

_TAKEN = "Choose another path, or read this file, then edit or delete it."


class EditableFiles(Protocol):
    """The files that an edit reads and writes: those of a worktree, or those of a tree value, which is not on disk."""

    def read_with_mode(self, path: RepoPath, cap: int = READ_CAP) -> tuple[bytes, bool]:
        """Content, and whether it is executable. Raises: `not_found`, `unsafe_path` for no regular file,
        `quota_exceeded` past `cap` bytes.
        """
        ...

    def exists(self, path: RepoPath) -> bool:
        """Whether an entry of any kind has this name."""
        ...

    def write(
        self, path: RepoPath, content: bytes | Iterable[bytes], *, executable: bool, owner: tuple[int, int] | None
    ) -> None:
        """Create or replace a file; missing directories are created."""
        ...

    def remove(self, path: RepoPath) -> None:
        """Delete a file, and directories above it that are empty then."""
        ...


@dataclass(frozen=True)
class FileState:
    """A file before or after an edit. `content` None: no file."""

    content: bytes | None
    executable: bool = False

    @property
    def sha256(self) -> str | None:
        return None if self.content is None else sha256_of(self.content)


ABSENT = FileState(None)


@dataclass(frozen=True)
class Absence:
    """Facts about a path without a file: whether it existed before, and similar paths."""

    was_there: bool = False
    near: tuple[str, ...] = ()


@dataclass(frozen=True)
class Edit:
    """One file of an edit, before and after. `source`: the origin of a rename or copy."""

    path: RepoPath
    before: FileState
    after: FileState
    source: RepoPath | None = None


@dataclass(frozen=True)
class EditOutcome:
    """The effect of an edit when it is published. `adjusted`: notes on parts that were corrected."""

    edits: tuple[Edit, ...]
    adjusted: tuple[str, ...] = ()


@dataclass(frozen=True)
class HashGate:
    """The current files, and the rules for editing them.

    `writable` accepts a path or refuses it by policy. `find_last_edit` names the edit of this task that left a file
    with this hash (None: no file); empty if there is none. `find_absence`: facts about a path expected to be a file.
    """

    files: EditableFiles
    writable: Callable[[str], RepoPath] = parse_repo_path
    find_last_edit: Callable[[RepoPath, str | None], str] = lambda _path, _sha256: ""
    find_absence: Callable[[RepoPath], Absence] = lambda _path: Absence()

    def check_states(self, expected: Mapping[str, str | None], *, creates: bool = True) -> dict[RepoPath, FileState]:
        """The named files, if each is writable and has the expected hash (None: it must not exist). `creates`: whether
        the edit could create a file that is not there, for the hint of the error.

        All paths are checked before any file is read. Raises: `unsafe_path`, `not_found`, `stale_hash`; `invalid_input`
        for what is no hash; `quota_exceeded` for a file that is too large, or that does not fit into `GATED_BYTES` with
        those before it, or for more than `MOST_FILES`.
        """
        if len(expected) > MOST_FILES:
            raise _number_error(len(expected))
        checked = {self.writable(path): sha256 for path, sha256 in expected.items()}
        for sha256 in checked.values():
            _require_hash(sha256)
        states, left = dict[RepoPath, FileState](), GATED_BYTES
        for path, sha256 in checked.items():
            states[path] = self._check_one(path, sha256, left, creates=creates)
            left -= len(states[path].content or b"")
        return states

    def check_state(self, path: str, expected: str | None, *, creates: bool = True) -> tuple[RepoPath, FileState]:
        """One checked path and its file."""
        ((checked, state),) = self.check_states({path: expected}, creates=creates).items()
        return checked, state

    def _check_one(self, path: RepoPath, expected: str | None, left: int, *, creates: bool) -> FileState:
        state = current_state(self.files, path, left)
        if state.sha256 == expected:
            return state
        edit = self.find_last_edit(path, state.sha256)
        who = f"another edit: {edit}" if edit else "the task's container, a restore or the repository, not by an edit"
        if state.content is None:
            absence = self.find_absence(path)
            hint = "" if creates else LISTED_PATH_HINT
            if edit or absence.was_there:
                raise _deletion_error(path, expected, who, hint)
            raise no_such_file_error(path, absence, hint)
        is_new = expected is None
        raise SandboxError(
            ErrorCode.STALE_HASH,
            f"There is a file {path} already" if is_new else f"{path} is not the version that you read",
            details=f"expected {expected or 'no file'}, current {state.sha256}\nlast changed by {who}",
            hint=_TAKEN if is_new else "Read the file again and edit its current content.",
            reason="exists" if is_new else "changed",
            data={"path": path, "expected_sha256": expected, "current_sha256": state.sha256},
        )


def _require_hash(text: str | None) -> None:
    if text is not None and not (isinstance(text, str) and _HASH.fullmatch(text)):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"{str(text)[:80]!r} is no hash of a file",
            hint="A hash is `sha256:` and 64 hexadecimal digits in lower case, as `read_file` returns it. For a "
            f"new file: {_NO_HASH}.",
        )


def _deletion_error(path: RepoPath, expected: str | None, who: str, hint: str) -> SandboxError:
    return SandboxError(
        ErrorCode.STALE_HASH,
        f"{path} was deleted since you read it",
        details=f"expected {expected}, current no file\ndeleted by {who}",
        hint=hint or f"To create it again, write it with {_NO_HASH}.",
        reason="deleted",
        data={"path": path, "expected_sha256": expected},
    )


def no_such_file_error(path: str, absence: Absence, hint: str) -> SandboxError:
    """The error `not_found`, with the facts about the path."""
    near = f"Did you mean: {', '.join(absence.near)}?" if absence.near else ""
    return SandboxError(
        ErrorCode.NOT_FOUND,
        f"There is no file {path}",
        details="The task's last commit or an edit had this file; it was deleted since." if absence.was_there else near,
        hint=hint or f"To create a new file, write it with {_NO_HASH}.",
        reason="deleted" if absence.was_there else NO_SUCH_FILE,
        data={"path": path, "did_you_mean": list(absence.near)},
    )


def current_state(files: EditableFiles, path: RepoPath, left: int = GATED_BYTES) -> FileState:
    """A regular file or its absence. Raises: `unsafe_path` for anything else, `quota_exceeded` past `left` bytes."""
    try:
        return FileState(*files.read_with_mode(path, min(left, READ_CAP)))
    except SandboxError as error:
        if error.code is ErrorCode.NOT_FOUND:
            return ABSENT
        if error.code is ErrorCode.QUOTA_EXCEEDED and left < READ_CAP:
            raise _total_error(path) from error
        raise


def _total_error(path: RepoPath) -> SandboxError:
    return SandboxError(
        ErrorCode.QUOTA_EXCEEDED,
        f"The files of one edit may have at most {GATED_BYTES} bytes together",
        details=f"{path} and the files before it have more",
        hint="No file was changed. Split the edit into several edits.",
    )


def _number_error(number: int) -> SandboxError:
    return SandboxError(
        ErrorCode.QUOTA_EXCEEDED,
        f"One edit may name at most {MOST_FILES} files",
        details=f"{number} have an expected hash",
        hint="No file was changed. Split the edit into several edits.",
    )


def rejection(
    brief: str, details: str = "", hint: str = "", *, reason: str | None = None, data: Mapping[str, Any] | None = None
) -> SandboxError:
    """The error for an edit that cannot be applied; no file was changed."""
    return SandboxError(
        ErrorCode.PATCH_REJECTED,
        brief,
        details=details[:2000],
        hint=hint or "No file was changed. Read the files and try again.",
        reason=reason,
        data=data,
    )
