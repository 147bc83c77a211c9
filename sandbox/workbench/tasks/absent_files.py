"""Explain a path of a task that has no file: whether a file was there before, and which similar paths exist."""

from __future__ import annotations

from collections.abc import Iterator

from sandbox.edits.hash_gate import Absence
from sandbox.edits.near_paths import find_near_paths
from sandbox.errors import SandboxError
from sandbox.git import objects
from sandbox.git.process import Git
from sandbox.models import PatchedFile, Task
from sandbox.policy.paths import show_path
from sandbox.store import journal
from sandbox.store.home import Home
from sandbox.workbench.controller.registered_repositories import RegisteredRepositories


def explain_absence(home: Home, repositories: RegisteredRepositories, task: Task, path: str) -> Absence:
    """From the task's last commit and its latest edits, without reading the worktree. If git fails: from the edits."""
    edited = {
        name
        for entry in journal.read_recent_entries(home, task.id)
        for file in entry.files
        for name in _list_paths(file)
    }
    try:
        _, git = repositories.open(task.repo_id)
        # The whole tree is listed, so that no text of the caller reaches git.
        known = edited | _list_tree_paths(git, objects.tree_of(git, task.head_commit))
        return Absence(was_there=True) if path in known else Absence(near=find_near_paths(path, known))
    except SandboxError:  # report the missing file, not this error
        return Absence(was_there=path in edited)


def _list_paths(file: PatchedFile) -> Iterator[str]:
    yield file.path
    if file.old_path is not None:
        yield file.old_path


def _list_tree_paths(git: Git, tree: str) -> set[str]:
    return {show_path(entry.path) for entry in objects.list_tree(git, tree, sizes=False)}
