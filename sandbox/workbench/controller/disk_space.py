"""Disk space of a running check: how much it may add to its files, and how much must stay free for the host."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.files.disk_images import DiskSize
from sandbox.files.stamps import coarse_now_ns
from sandbox.lazy_module import LazyModule
from sandbox.models import Check, Limits
from sandbox.store.home import Home
from sandbox.workbench.controller.disk_admission import NO_DEMAND, Demand
from sandbox.workbench.controller.services import Services
from sandbox.workspaces.own_disk import NewDisk, has_disk, measure_own_disk

if TYPE_CHECKING:
    from sandbox.checks import disk_watch, own_disk_watch
    from sandbox.checks.execute import CheckDirectories
    from sandbox.config import Settings
    from sandbox.files import deleted_open
else:  # loaded by a check: a new worktree only needs its size
    disk_watch = LazyModule("sandbox.checks.disk_watch")
    own_disk_watch = LazyModule("sandbox.checks.own_disk_watch")
    deleted_open = LazyModule("sandbox.files.deleted_open")

_ROOM_BYTES, _ROOM_FILES = 1024**3, 100_000  # for the files in which a room differs from the checkout below
_LEAST_BYTES = 1024**2  # the tables of a disk for the default number of files take up to as much


def choose_disk(
    services: Services, checks: Iterable[Check], *, is_room: bool, content: Demand = NO_DEMAND
) -> NewDisk | None:
    """The disk of a new worktree for these checks; None if the settings want none.

    In a task all checks share the largest limit, or the smallest disk that can be made. In a room each check has its
    own limit, and the room also holds the difference from the checkout below, or all of `content`. Sizes are rounded:
    each has a template of its own.
    """
    wish = services.settings.workspaces.disk
    if wish == "watch":
        return None
    limits = [check.limits for check in checks] or [Limits()]
    if is_room:
        size = DiskSize(
            sum(limit.disk_bytes for limit in limits) + _ROOM_BYTES * (1 + content.bytes // _ROOM_BYTES),
            sum(limit.disk_files for limit in limits) + _ROOM_FILES * (1 + content.files // _ROOM_FILES),
        )
    else:
        most = max(limit.disk_bytes for limit in limits)
        size = DiskSize(max(most, _LEAST_BYTES), max(limit.disk_files for limit in limits))
    return NewDisk(size, services.home.disk_templates, is_required=wish == "image")


def watch_disk(
    services: Services, place: CheckDirectories, limits: Limits
) -> disk_watch.DiskWatch | own_disk_watch.OwnDiskWatch:
    """The watch for one run. In a task's overlay all changes of the task count, elsewhere only those of the run."""
    layers = _find_layers(services.home, place.workspace)
    if layers is not None and has_disk(layers):
        measure = partial(measure_own_disk, layers)
        return own_disk_watch.OwnDiskWatch(
            measure, limits, _minimum_free_space(services.settings), layers, from_start=place.clean_room
        )
    upper = None if layers is None else layers / "upper"
    whole_task = upper is not None and not place.clean_room
    folders = (upper or place.workspace, place.report)
    devices = frozenset(folder.stat().st_dev for folder in (*folders, place.workspace))
    mounted_at = services.policies.workspace
    held = deleted_open.OpenFiles(place.workspace, mounted_at, devices)
    return disk_watch.DiskWatch(
        disk_watch.Additions(
            folders,
            0 if whole_task else coarse_now_ns(),
            held.measure_deleted,
            held.may_hide_files,
            held.note_denied,
        ),
        limits,
        _minimum_free_space(services.settings),
    )


def _minimum_free_space(settings: Settings) -> disk_watch.FreeSpaceFloor:
    disk = settings.disk
    return disk_watch.FreeSpaceFloor(disk.min_free_bytes, disk.min_free_files)


def _find_layers(home: Home, workspace: Path) -> Path | None:
    """The layers directory of an overlay, or the room of a step, if it has a disk; None for a plain worktree."""
    of_room = workspace.with_name(f"{workspace.name}.layers")
    of_task = home.layers(workspace.parent.name, workspace.name)
    of_step = workspace.parent.parent  # the room, with `disk/files` in it
    if has_disk(of_step):
        return of_step
    return next((layers for layers in (of_room, of_task) if layers.is_dir()), None)
