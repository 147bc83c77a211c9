"""Leftovers of a killed edit in a worktree: a file with one of our temporary names beside its target."""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Iterable, Iterator
from functools import partial

from sandbox.errors import SandboxError, describe_briefly
from sandbox.files.overlay_mounts import read_upper
from sandbox.files.tree import WorktreeFiles
from sandbox.models import Task, TaskStatus
from sandbox.policy.paths import RESERVED_PREFIX, show_path
from sandbox.store.home import Home
from sandbox.store.records import list_tasks
from sandbox.workbench.controller.policies_in_force import Policies
from sandbox.workbench.reconciling.reconciler import Finding, Reconciler
from sandbox.workbench.tasks.worktrees import ensure_task_mounted, has_worktree, locate_worktree
from sandbox.workspaces.own_disk import open_upper

_log = logging.getLogger(__name__)


def find_cut_off_edits(reconciler: Reconciler) -> Iterator[Finding]:
    """Leftovers in open tasks. All names of a worktree are read, also build output: an edit may have been there."""
    for task in list_tasks(reconciler.services.home):
        if task.status is not TaskStatus.CLOSED and has_worktree(
            locate_worktree(reconciler.services.home, reconciler.services.policies, task.repo_id, task.id)
        ):
            paths = _find_temporary_paths(reconciler.services.home, reconciler.services.policies, task)
            if paths:
                note = f"{len(paths)} temporary files, {show_path(paths[0])} first"
                yield Finding(
                    "cut-off edit",
                    task.id,
                    partial(_drop, reconciler.services.home, reconciler.services.policies, task, paths),
                    locks=(task.id,),
                    note=note,
                )


def _find_temporary_paths(home: Home, policies: Policies, task: Task) -> list[bytes]:
    """The temporary paths; empty if the worktree is removed in between or exceeds the limits."""
    try:
        return sorted(set(_list_temporary_paths(home, policies, task)))
    except (FileNotFoundError, SandboxError) as error:
        _log.info("the names of %s cannot be read: %s", task.id, describe_briefly(error))
        return []


def _list_temporary_paths(home: Home, policies: Policies, task: Task) -> Iterable[bytes]:
    site = locate_worktree(home, policies, task.repo_id, task.id)
    if site.layers.is_dir():
        with open_upper(site.layers) as upper:
            entries = read_upper(upper, lambda _: False).entries
        return (e.path for e in entries if _is_ours(e.path))
    with WorktreeFiles(site.root) as files:
        return [e.path for e in files.walk(lambda _: False) if _is_ours(e.path)]


def _is_ours(path: bytes) -> bool:
    return posixpath.basename(path).startswith(RESERVED_PREFIX)


def _drop(home: Home, policies: Policies, task: Task, paths: Iterable[bytes]) -> str | None:
    with WorktreeFiles(ensure_task_mounted(home, policies, task)) as files:
        return "" if sum([files.remove_temporary(path) for path in paths]) else None
