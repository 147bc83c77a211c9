"""Use-cases that edit a task's files: all hash-gated, all files or none."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.files.tree import WorktreeFiles
from sandbox.models import PatchResult
from sandbox.workbench.parts import Parts
from sandbox.workbench.repositories import cache_of
from sandbox.workbench.tasks import editing
from sandbox.workspaces.patch import apply_patch, publish


def patch(parts: Parts, task_id: str, text: bytes, expected: Mapping[str, str | None]) -> PatchResult:
    """Apply a hash-gated patch, all files or none. Raises: see `workspaces.patch`."""
    with editing(parts, task_id) as task:
        _, git = cache_of(parts, task.repo_id)
        with WorktreeFiles(parts.home.worktree(task.repo_id, task.id)) as files:
            return publish(files, apply_patch(git, files, text, expected), parts.file_owner)
