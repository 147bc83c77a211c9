"""Disk space of a running check: how much it may add to its files, and how much must stay free for the host."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.checks.disk_watch import Additions, DiskWatch, FreeSpaceFloor
from sandbox.files.deleted_open import measure_deleted_open
from sandbox.files.stamps import coarse_now_ns
from sandbox.models import CheckRun, Limits, Verdict
from sandbox.store.home import Home
from sandbox.workbench.controller.services import Services

if TYPE_CHECKING:
    from sandbox.checks.execute import CheckDirectories
    from sandbox.config import Settings

COUNTING_TIME_SHARE = 0.02


def watch_disk(services: Services, place: CheckDirectories, limits: Limits) -> DiskWatch:
    """The watch for one run. In a task's overlay all changes of the task count, elsewhere only those of the run."""
    upper = _find_overlay_upper(services.home, place.workspace)
    whole_task = upper is not None and not place.clean_room
    folders = (upper or place.workspace, place.report)
    devices = frozenset(folder.stat().st_dev for folder in (*folders, place.workspace))
    mounted_at = services.policies.workspace
    held = partial(measure_deleted_open, place.workspace, mounted_at, devices)
    return DiskWatch(
        Additions(folders, 0 if whole_task else coarse_now_ns(), held), limits, _minimum_free_space(services.settings)
    )


def add_disk_usage(run: CheckRun, watch: DiskWatch) -> CheckRun:
    """The run with the disk usage of its files, if that can be counted in 2 % of the run's wall time."""
    if run.verdict is not Verdict.DISK_LIMIT:
        watch.count_at_end(run.wall_time_s * COUNTING_TIME_SHARE)
    if watch.used is None:
        return run
    counted = {"disk_used_bytes": watch.used.bytes, "disk_used_files": watch.used.files}
    return run.model_copy(update={"usage": run.usage.model_copy(update=counted)})


def _minimum_free_space(settings: Settings) -> FreeSpaceFloor:
    disk = settings.disk
    return FreeSpaceFloor(disk.min_free_bytes, disk.min_free_files)


def _find_overlay_upper(home: Home, workspace: Path) -> Path | None:
    """The upper directory of an overlay, which holds the changes to the checkout below; None for a plain worktree."""
    of_room = workspace.with_name(f"{workspace.name}.layers")
    of_task = home.layers(workspace.parent.name, workspace.name)
    return next((layers / "upper" for layers in (of_room, of_task) if (layers / "upper").is_dir()), None)
