"""Worktrees without a task, tasks without a worktree, and mounts of closed tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.overlay_mounts import is_mount_point
from sandbox.models import LeftoverAction, Task, TaskStatus
from sandbox.store.home import Home
from sandbox.store.records import find_task, list_tasks
from sandbox.workbench.controller.policies_in_force import Policies
from sandbox.workbench.controller.services import Services
from sandbox.workbench.reconciling.reconciler import Finding, Reconciler, is_task_id, list_folder
from sandbox.workbench.reconciling.rescue import RescueResult, forecast_rescue, rescue
from sandbox.workbench.tasks.worktrees import (
    delete_worktree,
    has_worktree,
    is_without_files,
    locate_worktree,
    lock_mount,
    unmount_worktree,
)
from sandbox.workspaces.layout import WorktreePaths
from sandbox.workspaces.own_disk import has_disk, is_disk_mounted

_MOST_NAMES = 10


def find_worktrees(reconciler: Reconciler) -> Iterator[Finding]:
    """Worktrees of tasks without a record or with a damaged one, and mounts of closed tasks."""
    home = reconciler.services.home
    tops = (home.worktree("any", "any").parents[1], home.layers("any", "any").parents[1])
    pairs = {(repo.name, path.name) for top in tops for repo in list_folder(top) for path in list_folder(repo)}
    for repo_id, task_id in sorted(pairs):
        if is_task_id(task_id):
            yield from _judge(reconciler.services, repo_id, task_id)


def _judge(services: Services, repo_id: str, task_id: str) -> Iterator[Finding]:
    try:
        task = find_task(services.home, task_id, allow_closed=True)
    except SandboxError as error:
        if error.code is ErrorCode.NOT_FOUND:
            yield _orphan(services, repo_id, task_id)
        else:
            yield from _unreadable(services, repo_id, task_id)
        return
    site = locate_worktree(services.home, services.policies, repo_id, task_id)
    if task.status is TaskStatus.CLOSED and _is_any_mounted(site):
        yield Finding(
            "mount",
            task_id,
            partial(_unmount_closed, services.home, services.policies, task),
            locks=(task_id,),
            note="its task is closed",
        )


def _orphan(services: Services, repo_id: str, task_id: str) -> Finding:
    return Finding(
        "worktree",
        task_id,
        partial(_clear, services, repo_id, task_id),
        locks=(task_id,),
        note="it has no task",
        forecast=partial(_forecast_clear, services, repo_id, task_id),
    )


def _forecast_clear(services: Services, repo_id: str, task_id: str) -> str | None:
    is_new = services.home.creation_mark(task_id).exists()
    return (
        "it has no task" if is_new else _forecast_save(services, repo_id, task_id) or "it has no task, and no changes"
    )


def _clear(services: Services, repo_id: str, task_id: str) -> str | None:
    """Rescue the changes, then delete the worktree. A kill does not leave a partial worktree that is rescued again."""
    site = locate_worktree(services.home, services.policies, repo_id, task_id)
    if services.home.task(task_id).exists() or not has_worktree(site):
        return None  # the process that created the task held its lock
    saved = (
        RescueResult.NO_CHANGES
        if services.home.creation_mark(task_id).exists()
        else _save_changes(services, repo_id, task_id)
    )
    delete_worktree(services, site)
    return saved.note


def _save_changes(services: Services, repo_id: str, task_id: str) -> RescueResult:
    with _keep_on_error():
        return rescue(services, repo_id, task_id)


def _forecast_save(services: Services, repo_id: str, task_id: str) -> str | None:
    with _keep_on_error():
        names = forecast_rescue(services, repo_id, task_id)
    shown = ", ".join([*names[:_MOST_NAMES], *(["..."] if len(names) > _MOST_NAMES else [])])
    return f"{len(names)} changed file(s) would be kept under refs/sandbox/{task_id}/: {shown}" if names else None


@contextmanager
def _keep_on_error() -> Iterator[None]:
    try:
        yield
    except SandboxError as error:
        why = f"{error.brief} {error.details}".strip()
        hint = "copy what you need, then remove it manually"
        brief = "Its changes cannot be rescued"
        raise SandboxError(ErrorCode.DIRTY_WORKSPACE, brief, details=f"{why}; {hint}") from error


def _unreadable(services: Services, repo_id: str, task_id: str) -> Iterator[Finding]:
    """A worktree of a task with a record that is damaged or of a newer version: rescue its changes, keep all of it."""
    why = f"its record {services.home.task(task_id).name} cannot be read"
    yield Finding("worktree", task_id, note=f"{why}; it is kept until the record is repaired or moved away")
    yield Finding(
        "changes",
        task_id,
        partial(_rescue_changes, services, repo_id, task_id),
        action=LeftoverAction.RESCUED,
        locks=(task_id,),
        forecast=partial(_forecast_save, services, repo_id, task_id),
    )


def _rescue_changes(services: Services, repo_id: str, task_id: str) -> str | None:
    saved = _save_changes(services, repo_id, task_id)
    return saved.note if saved.is_new else None


def _is_any_mounted(site: WorktreePaths) -> bool:
    """Whether the worktree or its disk is mounted: a close that was killed may have unmounted only the first."""
    return is_mount_point(site.root) or (has_disk(site.layers) and is_disk_mounted(site.layers))


def _unmount_closed(home: Home, policies: Policies, task: Task) -> str | None:
    site = locate_worktree(home, policies, task.repo_id, task.id)
    if not _is_any_mounted(site):
        return None
    with lock_mount(home, task.id):
        unmount_worktree(site)
    return ""


def find_lost_worktrees(reconciler: Reconciler) -> Iterator[Finding]:
    """Open tasks without a worktree: a close was killed, or the worktree was deleted manually."""
    for task in list_tasks(reconciler.services.home):
        site = locate_worktree(reconciler.services.home, reconciler.services.policies, task.repo_id, task.id)
        is_lost = not has_worktree(site) and not (is_without_files(task, site) and task.worktree_path is None)
        if task.status is not TaskStatus.CLOSED and is_lost:
            yield Finding(
                "task",
                task.id,
                partial(_confirm_lost, reconciler.services.home, reconciler.services.policies, task),
                action=LeftoverAction.KEPT,
                locks=(task.id,),
                note=f"its worktree is gone; `sandbox task clean {task.id}` creates a new one from its last "
                "snapshot or commit",
            )


def _confirm_lost(home: Home, policies: Policies, task: Task) -> str | None:
    """Check again under the lock: another process may have closed the task."""
    now = find_task(home, task.id, allow_closed=True)
    is_lost = now.status is not TaskStatus.CLOSED and not has_worktree(
        locate_worktree(home, policies, task.repo_id, task.id)
    )
    return "" if is_lost else None
