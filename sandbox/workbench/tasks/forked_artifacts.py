"""Give a fork the build output of the task that it comes from: what the profile ignores as such, and git does not have.

Both are tasks, and no verdict that counts comes from their worktrees: clean rooms never get it. A file that the fork
changed is newer there than what was built from it, so build tools build that again.
"""

from __future__ import annotations

from sandbox.files.artifact_copy import copy_artifacts, find_artifacts
from sandbox.files.tree import WorktreeFiles
from sandbox.models import Task
from sandbox.policy.globs import PatternSet, parse_pattern
from sandbox.policy.paths import show_path
from sandbox.workbench.controller.disk_admission import Demand, Writer
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.profile_checks import load_task_profile
from sandbox.workbench.tasks.lifecycle import TaskComparison
from sandbox.workbench.tasks.worktrees import ensure_task_mounted, locate_worktree


def share_artifacts(services: Services, opened: TaskComparison, fork: Task) -> int:
    """Copy the build output of a task to its fork; returns the number of files. The caller holds the task's lock, and
    no check runs in it. Raises: `quota_exceeded`.
    """
    rules = load_task_profile(services, opened.task).artifacts
    patterns = PatternSet(pattern for rule in rules if (pattern := parse_pattern(rule)) is not None)
    entries = find_artifacts(opened.files, lambda path: patterns.covers(show_path(path).split("/")))
    demand = Demand(sum(entry.size for entry in entries), len(entries))
    owner = locate_worktree(services.home, services.policies, fork.repo_id, fork.id).owner
    root = ensure_task_mounted(services.home, services.policies, fork)
    with services.disk.admit(Writer.CHECKOUT, demand), WorktreeFiles(root) as files:
        return copy_artifacts(opened.files, files, entries, owner)
