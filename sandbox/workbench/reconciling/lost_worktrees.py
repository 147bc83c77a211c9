"""Worktrees without a task, tasks without a worktree, and mounts of closed tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.overlay import is_mounted
from sandbox.models import Task, TaskStatus, Tidying
from sandbox.store.records import find_task, list_tasks
from sandbox.workbench.controller.services import Parts
from sandbox.workbench.reconciling.rescue import Saved, rescue, would_rescue
from sandbox.workbench.reconciling.survey import Finding, Survey, children, is_task_id
from sandbox.workbench.tasks.worktrees import give_up, has_worktree, mounting, put_away, site_of

_NAMED = 10


def worktrees(survey: Survey) -> Iterator[Finding]:
    """Worktrees of tasks without a record or with a damaged one, and mounts of closed tasks."""
    home = survey.parts.home
    tops = (home.worktree("any", "any").parents[1], home.layers("any", "any").parents[1])
    pairs = {(repo.name, path.name) for top in tops for repo in children(top) for path in children(repo)}
    for repo_id, task_id in sorted(pairs):
        if is_task_id(task_id):
            yield from _judged(survey.parts, repo_id, task_id)


def _judged(services: Parts, repo_id: str, task_id: str) -> Iterator[Finding]:
    try:
        task = find_task(services.home, task_id, allow_closed=True)
    except SandboxError as error:
        if error.code is ErrorCode.NOT_FOUND:
            yield _orphan(services, repo_id, task_id)
        else:
            yield from _unreadable(services, repo_id, task_id)
        return
    if task.status is TaskStatus.CLOSED and is_mounted(services.home.worktree(repo_id, task_id)):
        yield Finding("mount", task_id, partial(_put_away, services, task), locks=(task_id,), note="its task is closed")


def _orphan(services: Parts, repo_id: str, task_id: str) -> Finding:
    return Finding(
        "worktree",
        task_id,
        partial(_clear, services, repo_id, task_id),
        locks=(task_id,),
        note="it has no task",
        forecast=partial(_would_clear, services, repo_id, task_id),
    )


def _would_clear(services: Parts, repo_id: str, task_id: str) -> str | None:
    is_new = services.home.making_mark(task_id).exists()
    return "it has no task" if is_new else _would_save(services, repo_id, task_id) or "it has no task, and no changes"


def _clear(services: Parts, repo_id: str, task_id: str) -> str | None:
    """Rescue the changes, then delete the worktree. A kill does not leave a partial worktree that is rescued again."""
    site = site_of(services, repo_id, task_id)
    if services.home.task(task_id).exists() or not has_worktree(site):
        return None  # the process that created the task held its lock
    saved = Saved.NOTHING if services.home.making_mark(task_id).exists() else _saved(services, repo_id, task_id)
    give_up(site)
    return saved.note


def _saved(services: Parts, repo_id: str, task_id: str) -> Saved:
    with _or_stays():
        return rescue(services, repo_id, task_id)


def _would_save(services: Parts, repo_id: str, task_id: str) -> str | None:
    with _or_stays():
        names = would_rescue(services, repo_id, task_id)
    shown = ", ".join([*names[:_NAMED], *(["..."] if len(names) > _NAMED else [])])
    return f"{len(names)} changed file(s) would be kept under refs/sandbox/{task_id}/: {shown}" if names else None


@contextmanager
def _or_stays() -> Iterator[None]:
    try:
        yield
    except SandboxError as error:
        why = f"{error.brief} {error.details}".strip()
        hint = "copy what you need, then remove it manually"
        brief = "Its changes cannot be rescued"
        raise SandboxError(ErrorCode.DIRTY_WORKSPACE, brief, details=f"{why}; {hint}") from error


def _unreadable(services: Parts, repo_id: str, task_id: str) -> Iterator[Finding]:
    """A worktree of a task with a record that is damaged or of a newer version: rescue its changes, keep all of it."""
    why = f"its record {services.home.task(task_id).name} cannot be read"
    yield Finding("worktree", task_id, note=f"{why}; it is kept until the record is repaired or moved away")
    yield Finding(
        "changes",
        task_id,
        partial(_rescued, services, repo_id, task_id),
        action=Tidying.RESCUED,
        locks=(task_id,),
        forecast=partial(_would_save, services, repo_id, task_id),
    )


def _rescued(services: Parts, repo_id: str, task_id: str) -> str | None:
    saved = _saved(services, repo_id, task_id)
    return saved.note if saved.is_new else None


def _put_away(services: Parts, task: Task) -> str | None:
    site = site_of(services, task.repo_id, task.id)
    if not is_mounted(site.root):
        return None
    with mounting(services, task.id):
        put_away(site)
    return ""


def lost_worktrees(survey: Survey) -> Iterator[Finding]:
    """Open tasks without a worktree: a close was killed, or the worktree was deleted manually."""
    for task in list_tasks(survey.parts.home):
        if task.status is not TaskStatus.CLOSED and not has_worktree(site_of(survey.parts, task.repo_id, task.id)):
            yield Finding(
                "task",
                task.id,
                partial(_still_lost, survey.parts, task),
                action=Tidying.KEPT,
                locks=(task.id,),
                note=f"its worktree is gone; `sandbox task clean {task.id}` creates a new one from its last "
                "snapshot or commit",
            )


def _still_lost(services: Parts, task: Task) -> str | None:
    """Check again under the lock: another process may have closed the task."""
    now = find_task(services.home, task.id, allow_closed=True)
    is_lost = now.status is not TaskStatus.CLOSED and not has_worktree(site_of(services, task.repo_id, task.id))
    return "" if is_lost else None
