"""Use-cases that edit a task's files. Each is hash-gated, and changes all its files or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from sandbox.edits.hash_gate import Gate, Outcome
from sandbox.edits.patch import apply_patch
from sandbox.edits.publish import publish
from sandbox.edits.replace import replace_text, write_whole
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import sha256_of
from sandbox.git import objects
from sandbox.models import ChangeKind, PatchedFile, PatchResult
from sandbox.policy.paths import check_path, path_bytes
from sandbox.policy.writes import check_writable
from sandbox.store import journal
from sandbox.store.records import find_task
from sandbox.workbench.controller.services import Parts
from sandbox.workbench.repositories.clone import cache_of
from sandbox.workbench.tasks.absent_files import absence_of
from sandbox.workbench.tasks.lifecycle import editing
from sandbox.workbench.tasks.worktrees import files_of


def patch(services: Parts, task_id: str, text: bytes, expected: Mapping[str, str | None]) -> PatchResult:
    """Apply a hash-gated patch to all its files or to none. Raises: see `edits.patch`."""
    return _edit(services, task_id, lambda gate: apply_patch(gate, text, expected))


def edit_file(services: Parts, task_id: str, path: str, old: str | bytes, new: str | bytes, expected: str) -> PatchResult:
    """Replace a text that occurs exactly once in a file."""
    before, after = _bytes(old), _bytes(new)
    return _edit(services, task_id, lambda gate: replace_text(gate, path, before, after, expected))


def write_file(
    services: Parts, task_id: str, path: str, content: str | bytes, expected: str | None, executable: bool | None
) -> PatchResult:
    """Replace or create a whole file."""
    raw = _bytes(content)
    return _edit(services, task_id, lambda gate: write_whole(gate, path, raw, expected, executable=executable))


def base_hash(services: Parts, task_id: str, path: str) -> str | None:
    """Hash of a file in the task's last commit, None when it is not there; read from git objects only."""
    task = find_task(services.home, task_id, allow_closed=True)
    _, git = cache_of(services, task.repo_id)
    oid = objects.blob_at(git, objects.tree_of(git, task.head_commit), path_bytes(check_path(path)))
    return None if oid is None else sha256_of(next(iter(objects.read_blobs(git, [oid]))))


def _edit(services: Parts, task_id: str, decide: Callable[[Gate], Outcome]) -> PatchResult:
    with editing(services, task_id) as task, files_of(services, task) as files:
        allowed = partial(check_writable, policy=services.paths, repo_id=task.repo_id)
        gate = Gate(files, allowed, partial(_left_by, services, task.id), partial(absence_of, services, task))
        return publish(files, decide(gate), services.file_owner)


def _left_by(services: Parts, task_id: str, path: str, sha256: str | None) -> str:
    """Name and time of the latest journaled edit that left a file in this state; empty if none is found."""
    for entry in journal.recent(services.home, task_id):
        if (path, sha256) in {*map(_left, entry.files), *map(_left_behind, entry.files)}:
            return f"{entry.operation} at {entry.at:%Y-%m-%d %H:%M:%S} UTC"
    return ""


def _left(file: PatchedFile) -> tuple[str | None, str | None]:
    return file.path, file.sha256_after


def _left_behind(file: PatchedFile) -> tuple[str | None, str | None]:
    return file.old_path if file.kind is ChangeKind.RENAMED else None, None


def _bytes(text: str | bytes) -> bytes:
    try:
        return text if isinstance(text, bytes) else text.encode()
    except UnicodeEncodeError as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "Text must be valid Unicode without lone surrogates",
            hint="In Python, pass the content as bytes.",
        ) from error
