"""Apply a patch away from the worktree, then publish its effect.

Gate on effect, not on text: the patch is applied by git to a private index that holds only the contents whose hashes
the caller gave, so a file that was not gated does not exist for it. What it did is read from the difference of two
trees, never from the patch text, whose headers can disagree (THREATS J).
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import WorktreeFiles, sha256_of
from sandbox.git.classify import scrub
from sandbox.git.diff import RawChange, diff_trees
from sandbox.git.objects import EXECUTABLE, REGULAR, list_tree, read_blobs
from sandbox.git.process import Git
from sandbox.models import ChangeKind, PatchedFile, PatchResult
from sandbox.policy.paths import RepoPath, check_path, path_bytes, show_path

PATCH_BYTES = 10 * 1024**2
_OFFSET = re.compile(r"^Hunk #\d+ succeeded at \d+ \(offset .*\)", re.MULTILINE)


@dataclass(frozen=True)
class FileState:
    """One file before or after an edit; `content` None: absent."""

    content: bytes | None
    executable: bool = False

    @property
    def sha256(self) -> str | None:
        return None if self.content is None else sha256_of(self.content)


@dataclass(frozen=True)
class Edit:
    """One file an edit touches, on both sides."""

    path: RepoPath
    before: FileState
    after: FileState


def apply_patch(git: Git, files: WorktreeFiles, patch: bytes, expected: Mapping[str, str | None]) -> list[Edit]:
    """What the patch does to the gated files, without writing anything. A None hash: the file must not exist.

    Raises: `stale_hash` with the current hash, `patch_rejected`, `unsafe_path`, `invalid_input`.
    """
    if len(patch) > PATCH_BYTES:
        raise SandboxError(ErrorCode.QUOTA_EXCEEDED, f"A patch has at most {PATCH_BYTES} bytes")
    if not patch.strip():
        raise _rejected("The patch is empty")
    gated = {check_path(path): sha256 for path, sha256 in expected.items()}
    before = {path: _gated_state(files, path, sha256) for path, sha256 in gated.items()}
    changes = _effect(git, patch, before)
    edits = _edits(git, files, changes, before)
    unused = sorted(set(gated) - {e.path for e in edits})
    if unused:
        raise _rejected("The patch does not touch a file that was given a hash", details=", ".join(unused))
    return edits


def _gated_state(files: WorktreeFiles, path: RepoPath, expected: str | None) -> FileState:
    try:
        state = FileState(*files.read_with_mode(path))
    except SandboxError as error:
        if error.code is not ErrorCode.NOT_FOUND:
            raise
        state = FileState(None)
    if state.sha256 != expected:
        raise SandboxError(
            ErrorCode.STALE_HASH,
            f"{path} is not what you last read",
            details=f"expected {expected or 'no file'}, current {state.sha256 or 'no file'}",
            hint="Read the file again and make the edit on its current content.",
        )
    return state


def _effect(git: Git, patch: bytes, before: Mapping[RepoPath, FileState]) -> list[RawChange]:
    with tempfile.TemporaryDirectory(prefix="sandbox-patch-") as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        git.run("read-tree", "--empty", env=env)
        records = b"".join(_index_record(git, path, state) for path, state in before.items())
        git.run("update-index", "-z", "--index-info", stdin=records, env=env)
        base = git.run("write-tree", env=env).decode().strip()
        applied = git.attempt("apply", "--cached", "--whitespace=nowarn", "-v", "-", stdin=patch, env=env)
        if applied.code != 0:
            raise _explain(applied.stderr)
        if offset := _OFFSET.search(applied.stderr):
            raise _rejected("A hunk fits only at another line than its header says", details=offset[0])
        result = git.run("write-tree", env=env).decode().strip()
    kept = {e.path for e in list_tree(git, base)}
    if kept != {path_bytes(path) for path, state in before.items() if state.content is not None}:
        raise _rejected("git ignored a path that was given a hash")
    return diff_trees(git, base, result)


def _index_record(git: Git, path: RepoPath, state: FileState) -> bytes:
    if state.content is None:
        return b""
    oid = git.run("hash-object", "-w", "--no-filters", "--stdin", stdin=state.content).strip()
    mode = EXECUTABLE if state.executable else REGULAR
    return mode.encode() + b" " + oid + b"\t" + path_bytes(path) + b"\0"


def _edits(
    git: Git, files: WorktreeFiles, changes: Sequence[RawChange], before: Mapping[RepoPath, FileState]
) -> list[Edit]:
    for change in changes:
        if change.new_mode not in {REGULAR, EXECUTABLE, "000000"}:
            raise _rejected("A patch may only make regular files", details=show_path(change.path))
    paths = [check_path(show_path(c.path)) for c in changes]
    contents = iter(read_blobs(git, [c.new_oid for c in changes if c.new_oid]))
    edits = []
    for change, path in zip(changes, paths, strict=True):
        after = FileState(next(contents), change.new_mode == EXECUTABLE) if change.new_oid else FileState(None)
        state = before.get(path, FileState(None))
        if state.content is None and files.exists(path):
            raise _rejected("The patch makes a file that exists already", details=path)
        edits.append(Edit(path, state, after))
    return edits


def publish(files: WorktreeFiles, edits: Sequence[Edit], owner: tuple[int, int] | None) -> PatchResult:
    """Write all edits or none: when one fails, those before it are taken back.

    The caller holds the task's lock and nothing runs in the task. Raises: the file's error; `stale_hash` when a file
    changed since the edit was computed.
    """
    done: list[Edit] = []
    try:
        for edit in edits:
            if _current(files, edit.path) != edit.before:
                raise SandboxError(ErrorCode.STALE_HASH, f"{edit.path} changed while the edit was made")
            done.append(edit)
            _put(files, edit.path, edit.after, owner)
    except BaseException:
        for edit in reversed(done):
            with suppress(SandboxError):  # what could not be written cannot be taken back either; the others can
                _put(files, edit.path, edit.before, owner)
        raise
    return PatchResult(files=tuple(_patched(edit) for edit in edits))


def _current(files: WorktreeFiles, path: RepoPath) -> FileState:
    try:
        return FileState(*files.read_with_mode(path))
    except SandboxError as error:
        if error.code is ErrorCode.NOT_FOUND:
            return FileState(None)
        raise


def _put(files: WorktreeFiles, path: RepoPath, state: FileState, owner: tuple[int, int] | None) -> None:
    if state.content is not None:
        files.write(path, state.content, executable=state.executable, owner=owner)
    elif files.exists(path):
        files.remove(path)


def _patched(edit: Edit) -> PatchedFile:
    kind = ChangeKind.MODIFIED
    if edit.before.content is None:
        kind = ChangeKind.ADDED
    elif edit.after.content is None:
        kind = ChangeKind.DELETED
    return PatchedFile(path=edit.path, kind=kind, sha256_before=edit.before.sha256, sha256_after=edit.after.sha256)


def _explain(stderr: str) -> SandboxError:
    """git's refusal in our words. Messages of git apply 2.39."""
    details = scrub(stderr)[:2000]
    if "does not exist in index" in stderr:
        return _rejected("The patch touches a file without an expected hash, or one that does not exist", details)
    if "already exists in index" in stderr:
        return _rejected("The patch makes a file that exists already", details)
    if "patch does not apply" in stderr or "patch failed" in stderr:
        return _rejected("The patch does not fit the content of the file", details)
    if "invalid path" in stderr or "beyond a symbolic link" in stderr:
        return SandboxError(ErrorCode.UNSAFE_PATH, "The patch names a path that is never allowed", details=details)
    return _rejected("This is not a patch that git can read", details)


def _rejected(brief: str, details: str = "") -> SandboxError:
    return SandboxError(
        ErrorCode.PATCH_REJECTED, brief, details=details, hint="Nothing was written. Read the files and try again."
    )
