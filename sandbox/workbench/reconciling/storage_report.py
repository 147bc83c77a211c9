"""Who holds what in a home, what limits it, and what `gc` would free."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from sandbox.byte_sizes import format_bytes
from sandbox.errors import SandboxError
from sandbox.files.disk_usage import DiskUse, FreeSpace
from sandbox.git.cache_clones import open_cache
from sandbox.images.lookup import RECIPE_LABEL
from sandbox.models import Task
from sandbox.models.storage import MeasuredStorage, RepositoryStorage, Storage, StorageKind, StorageUse, TaskStorage
from sandbox.store.records import list_tasks
from sandbox.store.storage_record import read_measured
from sandbox.workbench.controller.services import Services
from sandbox.workbench.reconciling import forecast_storage
from sandbox.workbench.reconciling.evictions import limit_of, remember
from sandbox.workbench.reconciling.storage_use import HomeUse, Key, measure_home
from sandbox.workspaces.own_disk import image_of

_log = logging.getLogger(__name__)
_MOST_TASKS = 20
_ONLY_HERE = "never: it may exist only here"
_REMOVAL = {
    StorageKind.CLONES: f"packed again after keep.repack_days; {_ONLY_HERE}",
    StorageKind.CHECKOUTS: "after workspaces.keep_unused_days without a worktree above it, or beyond a limit",
    StorageKind.WORKTREES: f"by closing the task with --delete; {_ONLY_HERE}",
    StorageKind.SNAPSHOTS: "with a closed task after keep.closed_tasks_days if all of it is elsewhere; else by "
    "`gc --forget`",
    StorageKind.LFS: "after workspaces.keep_unused_days without use, or beyond a limit",
    StorageKind.COMPILER_CACHES: "replaced by the next base commit, or beyond a limit",
    StorageKind.LAYERS: "after layers.keep_days without use, or beyond a limit",
    StorageKind.CANDIDATES: "all but the newest three of a repository, or beyond a limit",
    StorageKind.RELEASES: _ONLY_HERE,
    StorageKind.RUNS: "beyond keep.runs",
    StorageKind.LOGS: "beyond keep.runs and keep.logs_bytes, or beyond a limit",
    StorageKind.ARTIFACTS: "after keep.artifacts_days, or beyond a limit",
    StorageKind.VERDICTS: "beyond keep.verdicts, or beyond a limit",
    StorageKind.JOURNALS: "in part never: it is a chain; after keep.journals_days if its task was removed",
    StorageKind.QUARANTINE: "after keep.quarantine_days, if the new clone has all its commits",
    StorageKind.ROOMS: "at the end of their checks",
    StorageKind.WORKSPACES: f"by their release; {_ONLY_HERE}",
    StorageKind.OTHER: "settings, keys, records of tasks and approvals, locks",
    StorageKind.IMAGES: "after images.keep_days without use by any home",
}
_ONLY_HERE_KINDS = frozenset(
    {
        StorageKind.CLONES, StorageKind.WORKTREES, StorageKind.SNAPSHOTS, StorageKind.RELEASES, StorageKind.RUNS,
        StorageKind.JOURNALS, StorageKind.WORKSPACES, StorageKind.OTHER,
    }
)  # fmt: skip
"""What no limit removes."""


def show_storage(services: Services) -> Storage:
    """As `Storage` says. It walks all of the home, and asks the engine for images if this home ever used one."""
    found = measure_home(services.home)
    try:
        remember(services, found)
    except OSError as error:  # a full disk: its owners are wanted most then
        _log.warning("what the home holds is not noted: %s", error)
    images, engine_fault = _measure_images(services)
    disk, room = services.settings.disk, FreeSpace.of(services.home.root)
    return Storage(
        measured_at=datetime.now(UTC),
        bytes=found.total.bytes,
        files=found.total.files,
        max_bytes=services.settings.storage.max_bytes or None,
        only_here_bytes=sum(use.bytes for (kind, _), use in found.uses.items() if kind in _ONLY_HERE_KINDS),
        free_bytes=room.free_bytes,
        free_files=room.free_files,
        min_free_bytes=disk.min_free_bytes,
        min_free_files=disk.min_free_files,
        uses=_list_uses(services, found, images),
        repositories=tuple(_list_repositories(services, found)),
        tasks=tuple(_list_tasks(services, found)),
        reclaimable=forecast_storage(services, engine_fault),
        images_note=engine_fault,
    )


def read_last(services: Services) -> MeasuredStorage | None:
    """What the home held when it was measured last; None before the first time. It does not measure."""
    return read_measured(services.home)


def _measure_images(services: Services) -> tuple[DiskUse | None, str]:
    """The images of our recipes, and why they are unknown. Images share layers: on disk they are less."""
    if not (services.home.root / "instance").exists():
        return None, "this home has not used an engine"
    try:
        images = services.engine.list_images_with_label(RECIPE_LABEL)
    except SandboxError as error:
        return None, error.brief
    return DiskUse(sum(image.size_bytes for image in images), len(images)), ""


def _list_uses(services: Services, found: HomeUse, images: DiskUse | None) -> tuple[StorageUse, ...]:
    uses: dict[Key, DiskUse] = dict(found.uses)
    for kind, repo_id in list(uses):
        if kind is StorageKind.CLONES:
            snapshots = _measure_snapshots(services, repo_id)
            if snapshots:
                uses[StorageKind.SNAPSHOTS, repo_id] = DiskUse(snapshots)
                uses[kind, repo_id] = DiskUse(max(uses[kind, repo_id].bytes - snapshots, 0), uses[kind, repo_id].files)
    if images is not None:
        uses[StorageKind.IMAGES, ""] = images
    limits = _list_limits(services)
    rows = (
        StorageUse(
            kind=kind,
            repo_id=repo_id or None,
            bytes=use.bytes,
            files=use.files,
            limit_bytes=limits.get(kind, (None, ""))[0],
            limit=limits.get(kind, (None, ""))[1],
            removal=_REMOVAL[kind],
            is_complete=(kind, repo_id) not in found.incomplete,
        )
        for (kind, repo_id), use in uses.items()
    )
    return tuple(sorted(rows, key=lambda row: (-row.bytes, row.kind, row.repo_id or "")))


def _list_limits(services: Services) -> Mapping[StorageKind, tuple[int | None, str]]:
    """What each kind may hold: bytes, or another measure in words, and the setting."""
    keep, layers = services.settings.keep, services.settings.layers
    return {
        StorageKind.LAYERS: (layers.max_bytes, "layers.max_bytes"),
        StorageKind.RUNS: (None, f"{keep.runs:,} of each task and repository (keep.runs)"),
        StorageKind.LOGS: (None, f"{format_bytes(keep.logs_bytes)} of each task and repository (keep.logs_bytes)"),
        StorageKind.VERDICTS: (None, f"{keep.verdicts:,} (keep.verdicts)"),
        StorageKind.ARTIFACTS: (None, f"{keep.artifacts_days:g} days (keep.artifacts_days)"),
    }


def _measure_snapshots(services: Services, repo_id: str) -> int:
    """Bytes of the objects that only refs of snapshots and of rescued work lead to; 0 if git cannot say."""
    git_dir = services.home.clone(repo_id)
    if not (git_dir / "HEAD").is_file():
        return 0
    git = open_cache(git_dir, services.settings.git.executable)
    known = ("--not", "--branches", "--remotes", "--tags", "--glob=refs/sandbox/*/pushed")
    try:
        return int(git.run("rev-list", "--disk-usage", "--objects", "--glob=refs/sandbox/*", *known))
    except (SandboxError, ValueError):
        return 0


def _list_repositories(services: Services, found: HomeUse) -> Iterator[RepositoryStorage]:
    for repo_id in found.repositories():
        use = found.of_repository(repo_id)
        limit = limit_of(services.settings, repo_id) or None
        yield RepositoryStorage(repo_id=repo_id, bytes=use.bytes, files=use.files, max_bytes=limit)


def _list_tasks(services: Services, found: HomeUse) -> list[TaskStorage]:
    rows = [_describe_task(services, found, task) for task in list_tasks(services.home)]
    rows.sort(key=lambda row: (-(row.worktree_bytes + row.log_bytes), row.task_id))
    return [row for row in rows[:_MOST_TASKS] if row.worktree_bytes + row.log_bytes]


def _describe_task(services: Services, found: HomeUse, task: Task) -> TaskStorage:
    try:
        disk_bytes = image_of(services.home.layers(task.repo_id, task.id)).stat().st_size
    except OSError:
        disk_bytes = None
    return TaskStorage(
        task_id=task.id,
        repo_id=task.repo_id,
        status=task.status,
        worktree_bytes=found.worktrees[task.id].bytes if task.id in found.worktrees else 0,
        disk_bytes=disk_bytes,
        log_bytes=found.logs[task.id].bytes if task.id in found.logs else 0,
    )
