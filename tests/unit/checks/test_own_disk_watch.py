"""When a check on a disk of its own is stopped. Ids: THREATS S05, S06."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.checks.disk_watch import FreeSpaceFloor
from sandbox.checks.own_disk_watch import OwnDiskWatch
from sandbox.files.disk_usage import DiskUse, FreeSpace
from sandbox.models import Limits, Verdict

MIB = 1024**2
LIMITS = Limits(disk_bytes=50 * MIB, disk_files=1000)
EMPTY = FreeSpace(0, 0, 100 * MIB, 5000)
HOST = FreeSpace(0, 0, 1000 * MIB, 10**6)


class Disks:
    """What is measured of the check's disk and of the host's."""

    def __init__(self, own: FreeSpace = EMPTY, host: FreeSpace = HOST) -> None:
        self.own, self.host = own, host

    def watch(self, floor: FreeSpaceFloor, *, from_start: bool = False) -> OwnDiskWatch:
        return OwnDiskWatch(
            lambda: self.own, LIMITS, floor, Path(), from_start=from_start, room_of=lambda _folder: self.host
        )


@pytest.mark.parametrize(
    ("own", "verdict"),
    [
        (FreeSpace(50 * MIB, 1000, 50 * MIB, 4000), None),
        (FreeSpace(50 * MIB + 1, 10, 50 * MIB, 4000), Verdict.DISK_LIMIT),
        (FreeSpace(MIB, 1001, 50 * MIB, 4000), Verdict.DISK_LIMIT),
        (FreeSpace(MIB, 10, 4096, 4000), Verdict.DISK_LIMIT),
        (FreeSpace(MIB, 10, 50 * MIB, 0), Verdict.DISK_LIMIT),
    ],
    ids=["at-its-limits", "bytes", "files", "disk-is-full", "no-inode-is-free"],
)
def test_a_check_stops_past_its_limits_or_on_a_full_disk(own: FreeSpace, verdict: Verdict | None) -> None:
    disks = Disks()
    watch = disks.watch(FreeSpaceFloor())
    disks.own = own
    assert watch.check_disk_limit() is verdict
    assert watch.used == DiskUse(own.used_bytes, own.used_files)


def test_in_a_room_what_an_earlier_check_left_does_not_count() -> None:
    disks = Disks(FreeSpace(40 * MIB, 500, 60 * MIB, 4500))
    task, room = disks.watch(FreeSpaceFloor()), disks.watch(FreeSpaceFloor(), from_start=True)
    disks.own = FreeSpace(60 * MIB, 600, 40 * MIB, 4400)
    assert (task.check_disk_limit(), room.check_disk_limit()) == (Verdict.DISK_LIMIT, None)
    assert room.used == DiskUse(20 * MIB, 100)


@pytest.mark.parametrize(("own_mib", "verdict"), [(2, None), (40, Verdict.DISK_LIMIT)], ids=["neighbour", "taker"])
def test_s06_at_the_floor_the_check_that_took_the_space_stops(own_mib: int, verdict: Verdict | None) -> None:
    disks = Disks(host=FreeSpace(0, 0, 140 * MIB, 10**6))
    watch = disks.watch(FreeSpaceFloor(101 * MIB, 0))
    disks.own, disks.host = FreeSpace(own_mib * MIB, 1, 60 * MIB, 4000), FreeSpace(0, 0, 100 * MIB, 10**6)
    assert watch.check_disk_limit() is verdict


def test_a_worktree_that_is_removed_meanwhile_stops_nothing() -> None:
    disks = Disks()
    watch = disks.watch(FreeSpaceFloor())

    def gone() -> FreeSpace:
        raise FileNotFoundError

    watch._measure = gone
    assert watch.check_disk_limit() is None
    watch.count_at_end(1.0)
    assert watch.used is None
