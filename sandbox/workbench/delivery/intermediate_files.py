"""Files that a push sends only in its history: one commit added them and a later commit removed them."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.git.log import list_changed_paths
from sandbox.models import DiffFile, Task
from sandbox.policy.paths import show_path
from sandbox.workbench.controller.registered_repositories import RegisteredRepositories


def find_intermediate_paths(
    repositories: RegisteredRepositories, task: Task, sent: Sequence[DiffFile]
) -> tuple[str, ...]:
    """Paths that only intermediate commits of the task change. `sent`: the files that the commits change in total."""
    _, git = repositories.open(task.repo_id)
    named = {path for file in sent for path in (file.old_path, file.path)}
    return tuple(
        sorted({show_path(path) for path in list_changed_paths(git, task.base_commit, task.head_commit)} - named)
    )
