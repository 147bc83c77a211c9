"""Files that a push sends only in its history: a later commit removed them, or they are below the task's base."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.git.log import list_changed_paths, list_unpublished_paths
from sandbox.models import DiffFile, Task
from sandbox.policy.paths import show_path
from sandbox.workbench.controller.registered_repositories import RegisteredRepositories


def find_intermediate_paths(
    repositories: RegisteredRepositories, task: Task, sent: Sequence[DiffFile]
) -> tuple[str, ...]:
    """Paths that only earlier commits change. `sent`: the files that the task's commits change in total.

    Earlier are the task's own commits, and those below its base that no branch or tag of the remote has: the base may
    be the head of a stranger's request, whose commits are sent along.
    """
    _, git = repositories.open(task.repo_id)
    named = {path for file in sent for path in (file.old_path, file.path)}
    changed = list_changed_paths(git, task.base_commit, task.head_commit)
    changed |= list_unpublished_paths(git, task.base_commit)
    return tuple(sorted({show_path(path) for path in changed} - named))
