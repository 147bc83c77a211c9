"""Small files about tasks that are gone or completely created: stat indexes, marks, locks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sandbox.models import LeftoverAction
from sandbox.store.home import Home
from sandbox.store.liveness import DeadController, list_dead_controllers
from sandbox.store.lockfile import is_abandoned, remove_abandoned
from sandbox.workbench.reconciling.reconciler import Finding, Reconciler, find_matching, is_task_id, list_folder
from sandbox.workbench.tasks.pending_moves import finish_or_set_aside

_USE = re.compile(r"\A(mount|operation|start)-")
_WORKSPACE = re.compile(r"([a-z_-]+)-[0-9a-f]{24}")


def find_stat_indexes(reconciler: Reconciler) -> Iterator[Finding]:
    """Stat indexes of plain worktrees of tasks without a record."""
    home = reconciler.services.home
    for path in find_matching(home.repositories, "tasks/*.stat"):
        if is_task_id(path.stem) and not home.task(path.stem).exists() and not _is_used(reconciler, path.stem):
            yield Finding("stat index", path.stem, partial(_unlink, reconciler.services.home, path), locks=(path.stem,))


def _unlink(home: Home, path: Path) -> str | None:
    if home.task(path.stem).exists() or not path.exists():
        return None
    path.unlink()
    return ""


def find_creation_marks(reconciler: Reconciler) -> Iterator[Finding]:
    """Marks of tasks that were being created at a kill. Worktrees without a task record were removed before."""
    for path in find_matching(reconciler.services.home.repositories, "tasks/*.making"):
        if is_task_id(path.stem) and not (
            _is_used(reconciler, path.stem) and not reconciler.services.home.task(path.stem).exists()
        ):
            yield Finding("new task", path.stem, partial(_unmark, path), locks=(path.stem,))


def _unmark(path: Path) -> str | None:
    if not path.exists():
        return None
    path.unlink()
    return ""


def find_pending_moves(reconciler: Reconciler) -> Iterator[Finding]:
    """Syncs and checkouts that were killed. The next operation on the task would finish them, too."""
    services = reconciler.services
    for path in find_matching(services.home.repositories, "tasks/*.moving"):
        if not is_task_id(path.stem):
            continue
        if services.home.task(path.stem).exists():
            finish = partial(finish_or_set_aside, services, path.stem)
            yield Finding("move", path.stem, finish, LeftoverAction.RESTORED, (path.stem,))
        else:
            yield Finding("move", path.stem, partial(_unmark, path), locks=(path.stem,))
    for path in find_matching(services.home.repositories, "tasks/*.moving-unused"):
        if is_task_id(path.stem) and not services.home.task(path.stem).exists():
            yield Finding("move", path.stem, partial(_unmark, path), locks=(path.stem,))


def find_locks(reconciler: Reconciler) -> Iterator[Finding]:
    """Lock files of tasks without a record, and of workspaces that were released. A process that waits for an unlinked
    lock file retries on a new one.
    """
    for path in list_folder(reconciler.services.home.repositories / "locks"):
        if _has_no_owner(reconciler, path.stem) and is_abandoned(path):
            yield Finding("lock", path.name, partial(_unlock, path))


def _has_no_owner(reconciler: Reconciler, lock: str) -> bool:
    home = reconciler.services.home
    if found := _WORKSPACE.fullmatch(lock):
        folder = home.workspaces(found[1])
        return folder.is_dir() and not (folder / f"{lock}.json").exists()
    task_id = _USE.sub("", lock)
    return is_task_id(task_id) and not home.task(task_id).exists() and not _is_used(reconciler, task_id)


def _is_used(reconciler: Reconciler, task_id: str) -> bool:
    repositories = reconciler.services.home.repositories
    return bool(find_matching(repositories, f"worktrees/*/{task_id}", f"layers/*/{task_id}"))


def _unlock(path: Path) -> str | None:
    return "" if remove_abandoned(path) else None


def find_controllers(reconciler: Reconciler) -> Iterator[Finding]:
    """Records of killed controllers. They are removed last, when all leftovers of the controller are gone."""
    if reconciler.guests_unknown:
        return
    for dead in list_dead_controllers(reconciler.services.home.liveness):
        yield Finding("controller", dead.path.name, partial(_forget, dead))


def _forget(dead: DeadController) -> str | None:
    return "" if dead.remove() else None
