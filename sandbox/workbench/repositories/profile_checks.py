"""List the checks of a task or a repository, without loading the engine's modules, which takes long."""

from __future__ import annotations

from sandbox.models import Check, Task
from sandbox.profiles import Profile
from sandbox.workbench.controller.registered_repositories import OwnerCommit
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.commit_facts import load_profile


def list_checks(services: Services, owner_id: str) -> tuple[Check, ...]:
    """Checks of a task (at its base commit) or of a repository (at its default branch)."""
    return _find_owner_profile(services, owner_id).checks


def find_launch_check(services: Services, owner_id: str) -> Check | None:
    """The check that launches the application, of a task or of a repository; None without `[launch]`."""
    rule = _find_owner_profile(services, owner_id).launch
    return None if rule is None else rule.as_check()


def _find_owner_profile(services: Services, owner_id: str) -> Profile:
    return load_owner_profile(services, services.repositories.find_owner_commit(owner_id, allow_closed=True))


def load_owner_profile(services: Services, found: OwnerCommit) -> Profile:
    """The profile of a task's base commit, or of a repository's default branch."""
    name = found.task.profile if found.task else None
    return load_profile(services, found.repository.id, found.git, found.base_commit, name)


def load_task_profile(services: Services, task: Task) -> Profile:
    """The profile of a task's base commit."""
    _, git = services.repositories.open(task.repo_id)
    return load_profile(services, task.repo_id, git, task.base_commit, task.profile)
