"""What a controller leaves that was killed while it started a task under an id that was drawn elsewhere.

`gc` removes it, too. But the next start under the id may come before, and its branch would be in the way.
"""

from __future__ import annotations

from sandbox.git import refs
from sandbox.git.process import Git
from sandbox.models import Task, WorkspaceKind
from sandbox.store.records import list_tasks
from sandbox.workbench.controller.services import Services
from sandbox.workbench.tasks import tree_tasks
from sandbox.workbench.tasks.worktrees import delete_worktree, has_worktree, locate_worktree


def remove_killed_start(services: Services, git: Git, task: Task) -> None:
    """Remove the branch and files of a start of this task that no caller heard of. The caller holds the task's lock."""
    mark = services.home.creation_mark(task.id)
    if not mark.exists() or services.home.task(task.id).exists():
        return
    site = locate_worktree(services.home, services.policies, task.repo_id, task.id)
    if has_worktree(site):
        delete_worktree(services, site)
    if task.workspace_kind is WorkspaceKind.TREE:
        tree_tasks.forget_working_tree(git, task)
    if all(other.branch != task.branch for other in list_tasks(services.home) if other.repo_id == task.repo_id):
        refs.drop_ref(git, f"refs/heads/{task.branch}")  # else its name was chosen to be that of another
    mark.unlink()
