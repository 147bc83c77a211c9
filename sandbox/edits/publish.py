"""Write an edit to the worktree: all files or none."""

from __future__ import annotations

from contextlib import suppress

from sandbox.edits.hash_gate import Edit, EditableFiles, EditOutcome, FileState, current_state
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import ChangeKind, PatchedFile, PatchResult
from sandbox.policy.paths import RepoPath


def publish_edit(files: EditableFiles, outcome: EditOutcome, owner: tuple[int, int] | None) -> PatchResult:
    """Write all edits or none: if one fails, the earlier ones are reverted.

    The caller holds the task's lock, and no check runs in the task. Raises: the file's error; `stale_hash` if a file
    changed since the edit was computed.
    """
    done: list[Edit] = []
    try:
        for edit in sorted(outcome.edits, key=_deletions_first):
            if current_state(files, edit.path) != edit.before:
                raise SandboxError(
                    ErrorCode.STALE_HASH,
                    f"{edit.path} changed during the edit",
                    hint="No file was changed. Read the file again and edit its current content.",
                )
            done.append(edit)
            _write_state(files, edit.path, edit.after, owner)
    except BaseException:
        for edit in reversed(done):
            with suppress(SandboxError):  # the one that failed may fail again; revert the others
                _write_state(files, edit.path, edit.before, owner)
        raise
    return PatchResult(files=_list_files(outcome), adjusted=outcome.adjusted)


def _deletions_first(edit: Edit) -> bool:
    """Deletions first: a new file may take the name of a directory that becomes empty, and the reverse."""
    return edit.after.content is not None


def _write_state(files: EditableFiles, path: RepoPath, state: FileState, owner: tuple[int, int] | None) -> None:
    if state.content is not None:
        files.write(path, state.content, executable=state.executable, owner=owner)
    elif files.exists(path):
        files.remove(path)


def _list_files(outcome: EditOutcome) -> tuple[PatchedFile, ...]:
    """One entry per file; a rename is one entry for both paths."""
    before = {e.path: e.before for e in outcome.edits if e.after.content is None}
    renamed = {e.source for e in outcome.edits if e.source in before}
    return tuple(_entry(e, before) for e in outcome.edits if e.path not in renamed)


def _entry(edit: Edit, removed: dict[RepoPath, FileState]) -> PatchedFile:
    kind, before = ChangeKind.MODIFIED, edit.before
    if edit.source in removed:
        kind, before = ChangeKind.RENAMED, removed.pop(edit.source)  # of several copies, the first is the rename
    elif edit.before.content is None:
        kind = ChangeKind.ADDED
    elif edit.after.content is None:
        kind = ChangeKind.DELETED
    return PatchedFile(
        path=edit.path, kind=kind, old_path=edit.source, sha256_before=before.sha256, sha256_after=edit.after.sha256
    )
