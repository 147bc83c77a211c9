"""Small files that a home has for each commit or tree, and that can be computed again: facts of commits, and what the
manifests of a tree ask for. Without a limit each commit of an agent would leave some for good.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from sandbox.models import TaskStatus
from sandbox.store.failed_fetches import RECENT_S
from sandbox.store.layers import LAYERS_LOCK, LayerStore
from sandbox.store.records import list_tasks
from sandbox.workbench.reconciling.reconciler import Finding, Reconciler, find_matching, list_folder
from sandbox.workbench.reconciling.retention import DAY_S, age_s, size_of, unlink_all


def find_old_caches(reconciler: Reconciler) -> Iterator[Finding]:
    """Those written before `workspaces.keep_unused_days`, but facts of an open task's commits."""
    services = reconciler.services
    home, oldest_s = services.home, services.settings.workspaces.keep_unused_days * DAY_S
    open_tasks = [task for task in list_tasks(home) if task.status is not TaskStatus.CLOSED]
    in_use = {commit for task in open_tasks for commit in (task.base_commit, task.head_commit)}
    for folder in list_folder(home.pristines("any").parent):
        facts = find_matching(folder, "[0-9a-f]*.json")
        old = [path for path in facts if age_s(path) > oldest_s and path.name.partition(".")[0] not in in_use]
        yield from _group(folder.name, old, "facts of commits")
    store = LayerStore(home)
    yield from _group("dependencies", [p for p in store.list_sources() if age_s(p) > oldest_s], "manifests of trees")
    lost = store.list_lost_resolutions(oldest_s)
    for finding in _group("dependencies", lost, "choices of packages without their layers"):
        remedy = partial(_remove_resolutions, store, lost, oldest_s)
        yield replace(finding, remedy=remedy, locks=(LAYERS_LOCK,))
    failed = [path for path in store.list_failures() if age_s(path) > RECENT_S]
    yield from _group("dependencies", failed, "fetches that failed")


def _remove_resolutions(store: LayerStore, paths: list[Path], older_s: float) -> str:
    store.remove_lost_resolutions(paths, older_s)
    return ""


def _group(name: str, paths: list[Path], what: str) -> Iterator[Finding]:
    if paths:
        note = f"{len(paths)} files: {what}, which are computed again when they are needed"
        yield Finding("cache", name, partial(unlink_all, paths), note=note, bytes=sum(map(size_of, paths)))
