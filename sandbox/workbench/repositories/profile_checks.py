"""List the checks of a task or a repository, without loading the engine's modules, which takes long."""

from __future__ import annotations

from sandbox.git.cache_clones import resolve_commit
from sandbox.models import Check, Task
from sandbox.profiles import Profile
from sandbox.store.records import find_task
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.commit_facts import load_profile


def list_checks(services: Services, owner_id: str) -> tuple[Check, ...]:
    """Checks of a task (at its base commit) or of a repository (at its default branch)."""
    if owner_id.startswith("task-"):
        return load_task_profile(services, find_task(services.home, owner_id, allow_closed=True)).checks
    repository, git = services.repositories.open(owner_id)
    commit = resolve_commit(git, "HEAD", repository.default_branch)
    return load_profile(services, owner_id, git, commit).checks


def load_task_profile(services: Services, task: Task) -> Profile:
    """The profile of a task's base commit."""
    _, git = services.repositories.open(task.repo_id)
    return load_profile(services, task.repo_id, git, task.base_commit, task.profile)
