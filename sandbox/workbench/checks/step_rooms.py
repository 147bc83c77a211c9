"""The room of one step of a layer: a fetch or an install runs in it, in a guest without files of a repository.

In the room: `files`, the guest's working directory, and `report`. On hosts that can make one, both are on a disk of the
room's own (docs/adr/0049), so that no guest fills the host: also not with files that it deleted and sent to itself,
which no process has open.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sandbox.checks.cancellation import any_of, defer_interrupts, latch, stop_when_cancelled
from sandbox.checks.execute import CheckDirectories, Recorder, with_heartbeat
from sandbox.git.objects import EMPTY_TREES
from sandbox.models import Check, CheckRun
from sandbox.workbench.checks.callbacks import Watch, hold_errors
from sandbox.workbench.checks.memory_admission import demand_memory
from sandbox.workbench.checks.run import new_run_id
from sandbox.workbench.controller.disk_admission import NO_DEMAND, Demand, Writer
from sandbox.workbench.controller.disk_space import choose_disk, watch_disk
from sandbox.workbench.controller.guest_accounts import lease_account
from sandbox.workbench.controller.services import Services
from sandbox.workspaces.own_disk import create_disk_if_possible, find_files, remove_with_mounts

EMPTY_TREE = EMPTY_TREES[40]
"""git's id of a tree without files: a step sees no file of a repository."""


@dataclass(frozen=True)
class StepRoom:
    """A room. `folder`: ours; the guest sees only the directories of the check."""

    folder: Path
    run_id: str
    directories: CheckDirectories


@contextmanager
def open_step_room(
    services: Services, check: Check, inputs: Mapping[str, bytes], content: Demand = NO_DEMAND
) -> Iterator[StepRoom]:
    """A new room for a check, which is removed afterwards. `inputs`: files to write into it, by name. `content`: what
    the caller adds to it.

    `files` and `report` belong to the guest. So does the room, which it does not see: its uid is known to be in use.
    Raises: `quota_exceeded` when no uid is free; `policy_violation` for a disk that is required and impossible.
    """
    run_id = new_run_id(services.presence)
    folder = services.home.clean_room(run_id)
    with lease_account(services, run_id) as account:
        try:
            folder.mkdir(mode=0o700)
            _create_disk(services, folder, check, content)
            place = find_files(folder)
            directories = CheckDirectories(
                place / "files", place / "report", account, EMPTY_TREE, clean_room=True, task_id=None
            )
            room = StepRoom(folder, run_id, directories)
            _lay_out(room, inputs)
            yield room
        finally:
            remove_with_mounts(folder)


def run_step(
    services: Services,
    recorder: Recorder,
    which: tuple[str, Check, CheckDirectories],
    watch: Watch,
    layer: str,
) -> CheckRun:
    """Wait for a turn, as a check does, and run the command."""
    run_id, check, directories = which
    with hold_errors(watch.follow) as follow, defer_interrupts() as interrupted:
        wish = latch(any_of(stop_when_cancelled(watch.cancelled), stop_when_cancelled(interrupted)))
        demand = demand_memory(services, (check.limits,), layer)
        with services.check_queue.wait_for_slot(layer, lambda: wish() is not None, watch.queued, demand) as turn:
            disk = watch_disk(services, directories, check.limits)
            why_stop = with_heartbeat(latch(any_of(wish, disk.check_disk_limit)), turn.heartbeat)
            with services.disk.admit(Writer.CHECK, Demand(2 * check.limits.output_bytes, 4)):
                counted = replace(directories, disk=disk)
                return recorder.run(run_id, check, counted, follow, why_stop)


def _create_disk(services: Services, room: Path, check: Check, content: Demand) -> None:
    """Create the room's disk where the settings want one. A controller that is not root makes no disk, and says so in
    `doctor`.
    """
    disk = choose_disk(services, [check], is_room=True, content=content)
    if disk is not None and (disk.is_required or os.geteuid() == 0):
        create_disk_if_possible(room, disk, None)


def _lay_out(room: StepRoom, inputs: Mapping[str, bytes]) -> None:
    uid, gid = room.directories.account.user
    os.chown(room.folder, uid, gid)
    for folder in (room.directories.workspace, room.directories.report):
        folder.mkdir()
        folder.chmod(0o755)
        os.chown(folder, uid, gid)
    for name, content in inputs.items():
        path = room.directories.workspace / Path(name).name
        path.write_bytes(content)
        path.chmod(0o644)
