"""Files that a push sends only in its history: a later commit removed them, or they are below the task's base."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.git.log import list_changed_paths
from sandbox.models import DiffFile, Task
from sandbox.policy.paths import show_path
from sandbox.workbench.controller.registered_repositories import RegisteredRepositories
from sandbox.workbench.delivery.sent_commits import list_paths_below_base


def find_intermediate_paths(
    repositories: RegisteredRepositories, task: Task, sent: Sequence[DiffFile]
) -> tuple[str, ...]:
    """Paths that only earlier commits of the task change. `sent`: the files that its commits change in total."""
    _, git = repositories.open(task.repo_id)
    named = {path for file in sent for path in (file.old_path, file.path)}
    changed = list_changed_paths(git, task.base_commit, task.head_commit)
    return tuple(sorted({show_path(path) for path in changed} - named))


def find_paths_below_base(repositories: RegisteredRepositories, task: Task) -> tuple[str, ...]:
    """Paths that commits below the task's base change, of those that the remote does not have: the base may be the head
    of a stranger's request, or of another task: its commits are sent along. The head may have these files.
    """
    _, git = repositories.open(task.repo_id)
    return tuple(sorted({show_path(path) for path in list_paths_below_base(git, task)}))
