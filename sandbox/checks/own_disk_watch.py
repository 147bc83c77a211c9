"""Watch a check with a disk of its own for its files (docs/adr/0049). The kernel enforces the size: the guest gets
ENOSPC. What is left to watch is two system calls: a limit smaller than the disk, a full disk, and the host's floor.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sandbox.checks.disk_watch import FreeSpaceFloor
from sandbox.files.disk_usage import DiskUse, FreeSpace, is_full
from sandbox.models import Limits, Verdict


class OwnDiskWatch:
    """Measures a check's disk while it runs, and decides DISK_LIMIT. `used`: the last measurement.

    `from_start`: what was on the disk when the check started does not count.
    """

    def __init__(
        self,
        measure: Callable[[], FreeSpace],
        limits: Limits,
        floor: FreeSpaceFloor,
        host_folder: Path,
        *,
        from_start: bool,
        room_of: Callable[[Path], FreeSpace] = FreeSpace.of,
    ) -> None:
        """Raises: OSError when the disk or the host's folder cannot be measured."""
        self._measure, self._limits, self._floor = measure, limits, floor
        self._host_folder, self._room_of = host_folder, room_of
        own = measure()
        self._at_start = DiskUse(own.used_bytes, own.used_files)
        self._host_at_start = room_of(host_folder)
        self._not_counted = self._at_start if from_start else DiskUse()
        self.used: DiskUse | None = None

    def check_disk_limit(self) -> Verdict | None:
        """The `StopCondition`: DISK_LIMIT when the check's files exceed the limits or fill the disk, or when the host
        reached its floor and this check took a large part of what is gone.
        """
        with suppress(OSError):  # the worktree was removed
            own = self._measure()
            self.used = used = _subtract(own, self._not_counted)
            over = used.bytes > self._limits.disk_bytes or used.files > self._limits.disk_files
            if over or is_full(own) or self._takes_the_host_s(own):
                return Verdict.DISK_LIMIT
        return None

    check_at_end = check_disk_limit
    """Asked once after the guest has ended. The same two system calls."""

    def count_at_end(self, _seconds: float) -> None:
        """Measure at the end of a check, for its report."""
        with suppress(OSError):
            self.used = _subtract(self._measure(), self._not_counted)

    def _takes_the_host_s(self, own: FreeSpace) -> bool:
        taken = _subtract(own, self._at_start).bytes  # its files are inodes of its disk, not of the host
        return self._floor.is_reached_by(DiskUse(taken, 0), self._host_at_start, self._room_of(self._host_folder))


def _subtract(own: FreeSpace, before: DiskUse) -> DiskUse:
    return DiskUse(max(own.used_bytes - before.bytes, 0), max(own.used_files - before.files, 0))
