"""What is known of a path of a task where there is no file: whether there was one, and which other is meant."""

from __future__ import annotations

from collections.abc import Iterator

from sandbox.edits.hash_gate import Absence
from sandbox.edits.near_paths import near_paths
from sandbox.errors import SandboxError
from sandbox.git import objects
from sandbox.git.process import Git
from sandbox.models import PatchedFile, Task
from sandbox.policy.paths import show_path
from sandbox.store import journal
from sandbox.workbench.controller.services import Parts
from sandbox.workbench.repositories.clone import cache_of


def absence_of(parts: Parts, task: Task, path: str) -> Absence:
    """From the task's last commit and its latest edits; the worktree is not read. Nothing where git cannot say."""
    edited = {name for entry in journal.recent(parts.home, task.id) for file in entry.files for name in _names(file)}
    try:
        _, git = cache_of(parts, task.repo_id)
        known = edited | _committed(
            git, objects.tree_of(git, task.head_commit)
        )  # listed: git is told no word of theirs
        return Absence(was_there=True) if path in known else Absence(near=near_paths(path, known))
    except SandboxError:  # that the file is not there is what matters
        return Absence(was_there=path in edited)


def _names(file: PatchedFile) -> Iterator[str]:
    yield file.path
    if file.old_path is not None:
        yield file.old_path


def _committed(git: Git, tree: str) -> set[str]:
    return {show_path(entry.path) for entry in objects.list_tree(git, tree, sizes=False)}
