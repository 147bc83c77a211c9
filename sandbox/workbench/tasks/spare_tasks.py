"""Spare tasks: made ahead, with worktree, user, disk and started container, and taken over by `task create`
(docs/adr/0130).

A spare is a task with the status `spare`. It has a record, so locks, users, storage and `gc` treat it as a task, and
`find_task` gives it to no operation that writes or runs: before it is taken over, no program but PID 1 and no edit has
been in it. Who deletes its mark may take it over or close it; both happen once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import refs
from sandbox.git.maintenance import store_objects
from sandbox.git.process import Git
from sandbox.lazy_dataclass import dataclass
from sandbox.models import Task, TaskStatus
from sandbox.store.records import find_task, save_task
from sandbox.version import __version__
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.repository_settings import choose_added_files, read_settings
from sandbox.workbench.tasks.branch_names import list_branch_refs, name_branch
from sandbox.workbench.tasks.worktrees import list_checks_at


@dataclass(frozen=True)
class WantedTask:
    """What a caller of `task create` wants. `commit`: where the task starts. `branch`: as in `TaskOptions`."""

    repo_id: str
    prompt: str
    base_branch: str
    commit: str
    branch: str | None = None


def digest_purpose(services: Services, git: Git, repo_id: str, commit: str) -> str:
    """A digest of what decides how a new task is made: checks with their limits, policies, settings, version."""
    settings, chosen = services.settings, read_settings(services.home, services.policies, repo_id)
    parts = (
        __version__,
        services.policies.container.model_dump(mode="json"),
        settings.container.model_dump(mode="json"),
        settings.workspaces.model_dump(mode="json"),
        services.policies.pristine_owner,
        [check.model_dump(mode="json") for check in list_checks_at(services, git, repo_id, commit)],
        asdict(choose_added_files(services, chosen.submodules, lfs=chosen.lfs)),
    )
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def adopt_spare(services: Services, git: Git, wanted: WantedTask) -> Task | None:
    """Give a spare to the caller as a new task; None if none fits. Raises: `conflict`, `quota_exceeded` for its branch.

    Its container is compared with the request at the first check, as that of any task.
    """
    purpose = ""
    for task_id in _list_marked(services):
        try:
            with services.home.locked(task_id, timeout_s=0):
                spare = find_task(services.home, task_id, allow_closed=True)
                if not _fits(spare, wanted):
                    continue
                purpose = purpose or digest_purpose(services, git, wanted.repo_id, wanted.commit)
                if _take_mark(services, task_id, purpose):
                    return _rename(services, git, spare, wanted)
        except SandboxError as error:
            if error.code not in {ErrorCode.CONFLICT, ErrorCode.NOT_FOUND}:
                raise  # held by another caller, or gone
    return None


def _list_marked(services: Services) -> Iterator[str]:
    return (path.stem for path in sorted((services.home.repositories / "tasks").glob("task-*.spare")))


def _fits(spare: Task, wanted: WantedTask) -> bool:
    return (spare.status, spare.repo_id, spare.base_commit) == (TaskStatus.SPARE, wanted.repo_id, wanted.commit)


def _take_mark(services: Services, task_id: str, purpose: str) -> bool:
    """Whether the mark says this purpose and was there to be deleted."""
    mark = services.home.spare_mark(task_id)
    try:
        if mark.read_text() != purpose:
            return False
        mark.unlink()
    except FileNotFoundError:
        return False
    return True


def undo_rename(git: Git, spare: Task) -> None:
    """Delete the branch that a spare got from a caller who was killed before its record said so. No commit is lost: a
    spare has none of its own. The caller holds the spare's lock, and its mark is gone.
    """
    for name in list_branch_refs(git, spare.id):
        if name != f"refs/heads/{spare.branch}":
            refs.delete_ref(git, name, spare.head_commit)


def _rename(services: Services, git: Git, spare: Task, wanted: WantedTask) -> Task:
    """The spare as the caller's task, on a branch with its name. A kill leaves a spare without mark, or the task.

    Raises: `conflict`, `quota_exceeded`.
    """
    task = spare.model_copy(
        update={
            "prompt": wanted.prompt,
            "base_branch": wanted.base_branch,
            "branch": name_branch(spare.id, wanted.prompt, wanted.branch),
            "status": TaskStatus.WORKING,
            "created_at": datetime.now(UTC),
            "session": services.caller.session,
        }
    )
    with store_objects(git):
        refs.rename_ref(git, f"refs/heads/{spare.branch}", f"refs/heads/{task.branch}", task.head_commit)
    return save_task(services.home, task)
