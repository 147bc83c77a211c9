"""Use-case: remove a repository and its files. Work that exists only here is deleted only with `discard`.

Theory. All conditions are checked first, and a refusal has no effect. Then, in this order: worktrees of closed tasks
are removed; the registry entry is removed (under the lock for saving new tasks, so no new task can appear in between);
each folder is renamed and then deleted. A kill at any point leaves either a registered repository with fewer files or
an unregistered one with leftovers. `remove` continues from both, and `clone` starts a new clone beside them.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.checkout import remove_tree
from sandbox.git.process import Git
from sandbox.git.set_aside import find_uncopied_refs
from sandbox.models import SLUG_PATTERN, RemoveResult, Task
from sandbox.store.home import REPOSITORY_FOLDERS, Home
from sandbox.store.records import (
    NOT_IN_USE,
    delete_repository,
    find_repository,
    find_task,
    list_repositories,
    list_tasks,
    require_no_open_task,
)
from sandbox.store.release_folder import find_releases
from sandbox.workbench.controller.services import Services
from sandbox.workbench.controller.startup import ensure_recovered
from sandbox.workbench.tasks.lifecycle import EDIT_WAIT_S, close_task, compare_task
from sandbox.workbench.tasks.only_copies import find_only_copies, list_request_heads
from sandbox.workbench.tasks.worktrees import locate_worktree, remove_worktree
from sandbox.workspaces.changes import describe_left_out

_UNCOMMITTED = "uncommitted changes"


def remove(services: Services, repo_id: str, *, discard: bool) -> RemoveResult:
    """Remove a repository with its cache clone, checkouts and own logs. Records and logs of its tasks are kept, and
    its releases, which may be in use.

    Raises: `not_found`; `conflict` while it has open tasks; `dirty_workspace` when closed tasks left commits that were
    never pushed or that the remote no longer has, uncommitted changes, names that no commit can hold, or snapshots,
    unless `discard`.
    """
    ensure_recovered(services)
    home = services.home
    if re.fullmatch(SLUG_PATTERN, repo_id) is None or not _list_folders(home, repo_id):
        find_repository(home, repo_id)
    with home.locked(f"repository-{repo_id}", EDIT_WAIT_S), home.locked(f"pristine-{repo_id}", EDIT_WAIT_S):
        require_no_open_task(home, repo_id)
        lost = _find_only_copies(services, repo_id, discard=discard)
        known = next((r for r in list_repositories(home) if r.id == repo_id), None)
        for task in _list_tasks_with_worktree(home, repo_id):
            if task.status in NOT_IN_USE:  # a task created in between is refused by `delete_repository`
                close_task(services, task.id, delete=True, discard=discard)
        delete_repository(home, repo_id)
        for orphan in _list_folder(home.repositories / "worktrees" / repo_id):
            # a mount would keep the folder busy
            remove_worktree(services, locate_worktree(services.home, services.policies, repo_id, orphan.name))
        _delete(home, repo_id)
    return RemoveResult(
        repo_id=repo_id,
        remote_url=known.remote_url if known else None,
        lost=lost,
        releases=find_releases(home, repo_id),
    )


def _find_only_copies(services: Services, repo_id: str, *, discard: bool) -> tuple[str, ...]:
    """Descriptions of work that exists only here. Raises: `dirty_workspace` unless `discard`."""
    clone = services.home.clone(repo_id)
    try:
        heads = list_request_heads(list_tasks(services.home, repo_id))
        in_clone = find_only_copies(Git(clone, services.settings.git.executable), heads)
        uncopied = (ref.description for ref in find_uncopied_refs(clone))
        lost = (*(copy.description for copy in in_clone), *uncopied, *_find_uncommitted(services, repo_id))
    except SandboxError:
        if not discard:
            raise
        lost = ("the contents of a damaged cache clone",)
    if lost and not discard:
        raise SandboxError(
            ErrorCode.DIRTY_WORKSPACE,
            f"{repo_id} holds work that exists only here",
            details="\n".join(lost[:20]),
            hint=f"Fetch the branches you want to keep from {clone}, or repeat with --discard to delete all of it.",
        )
    return lost


def _find_uncommitted(services: Services, repo_id: str) -> Iterator[str]:
    """Worktrees with changes. Raises: `internal` for a damaged task record: the task may be open."""
    tasks = {t.id: t for t in _list_tasks_with_worktree(services.home, repo_id)}
    for name in sorted(
        p.name for p in _list_folder(services.home.repositories / "worktrees" / repo_id) if p.name[0] != "."
    ):
        if name not in tasks:
            yield f"worktree {name}: it has no task"
        else:
            yield from (f"worktree of {name}: {work}" for work in _find_unsaved_work(services, tasks[name]))


def _find_unsaved_work(services: Services, task: Task) -> tuple[str, ...]:
    try:
        with compare_task(services, task, reads_all=True) as opened:
            changes = (_UNCOMMITTED,) if opened.changes.tree else ()
            return (*changes, *filter(None, [describe_left_out(opened.changes)]))
    except SandboxError as error:
        if error.code is not ErrorCode.NOT_FOUND:
            raise
        return (_UNCOMMITTED,)  # unknown without the clone or the registry entry


def _list_tasks_with_worktree(home: Home, repo_id: str) -> list[Task]:
    """Tasks that still have a worktree. Raises: `internal` for a damaged record among them."""
    names = {p.name for p in _list_folder(home.repositories / "worktrees" / repo_id)}
    recorded = sorted(n for n in names if home.task(n).exists())
    return [find_task(home, name, allow_closed=True) for name in recorded]


def _list_folder(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _list_folders(home: Home, repo_id: str) -> list[Path]:
    """All folders of one repository, including those that an earlier removal or clone left."""
    wanted = re.compile(rf"{re.escape(repo_id)}|\.{re.escape(repo_id)}\.(incoming|corrupt-\d+|removed-[0-9a-f]{{16}})")
    found = (path for name in REPOSITORY_FOLDERS for path in _list_folder(home.repositories / name))
    return sorted(p for p in found if wanted.fullmatch(p.name))


def _delete(home: Home, repo_id: str) -> None:
    """Rename first: another process then finds no folder, instead of a partial one."""
    for path in _list_folders(home, repo_id):
        if path.name == repo_id:
            path.rename(path.with_name(f".{repo_id}.removed-{secrets.token_hex(8)}"))
    for path in _list_folders(home, repo_id):
        remove_tree(path)
