"""Watch the disk space that a check uses (docs/adr/0022). Without a thread: it is a `StopCondition` like the others.

The engine has no limit for a bind mount, and project quotas need a special file system. So the watch first asks how
much the whole file system grew since the last count, which is one system call. Only when that is a large part of the
budget, or the last count is long ago, it counts the directories, in time slices.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from sandbox.files.disk_usage import DiskUse, FreeSpace, TooDeepError, measure_disk_use
from sandbox.lazy_dataclass import dataclass
from sandbox.models import Limits, Verdict

SLICE_S = 0.02
"""How long one call counts files; the next call continues."""

URGENT_SLICE_S = 1.0
"""The same, when the file system grew by more than the whole budget."""

_WORTH_COUNTING = 1 / 8  # of the budget, used by any process of the host
_QUIET_S = 10.0  # count again after this even without growth: deletions by others hide what a check adds
_FIRST_S = 2.0
_AT_ONCE = 50  # names between two reads of the clock
_SMALL_PART = 1 / 8  # of the free space below the floor
_LARGE_SHARE = 1 / 2  # of what is gone since the check started, at the floor
_PAUSE = 5  # pause before the next count, in multiples of the last count's time


@dataclass(frozen=True)
class FreeSpaceFloor:
    """Space that must stay free for the host. Reached: no new check starts, and running checks are stopped."""

    bytes: int = 0
    files: int = 0

    def is_reached(self, room: FreeSpace) -> bool:
        """Whether less is free than must be. Pure."""
        return room.free_bytes < self.bytes or (room.free_files is not None and room.free_files < self.files)

    def is_reached_by(self, own: DiskUse, before: FreeSpace, now: FreeSpace) -> bool:
        """Whether the floor is reached and a check that added `own` since `before` has to stop for it. Pure.

        A check stops when it took at least half of what is gone since it started (THREATS S06). The share falls with
        the space that is left, so that many checks that take a little each are stopped too. What is small beside the
        space that is left never stops a check.
        """
        is_taking = _is_taking(own.bytes, before.free_bytes, now.free_bytes, self.bytes)
        if now.free_files is None or before.free_files is None:
            return is_taking
        return is_taking or _is_taking(own.files, before.free_files, now.free_files, self.files)


def _is_taking(own: int, free_before: int, free_now: int, floor: int) -> bool:
    if free_now >= floor or own <= free_now * _SMALL_PART:
        return False
    return own >= _LARGE_SHARE * (free_now / floor) * max(free_before - free_now, 0)


def _no_files() -> Iterator[DiskUse]:
    return iter(())


def _is_false() -> bool:
    return False


@dataclass(frozen=True)
class Additions:
    """The files of a check: those below `folders`, which are on one file system.

    `since_ns`: only those changed at that time or later, 0: all. `deleted_open`: open files that were deleted.
    `may_hide_files`: whether the last counts met signs of files of unknown size, which cannot be measured. A count
    begins with `deleted_open`; `note_denied` is called for files of `folders` that we may not examine.
    """

    folders: tuple[Path, ...]
    since_ns: int = 0
    deleted_open: Callable[[], Iterator[DiskUse]] = _no_files
    may_hide_files: Callable[[], bool] = _is_false
    note_denied: Callable[[], object] = _is_false

    def measure_files(self) -> Iterator[DiskUse]:
        """Yield the disk use of each file."""
        deleted_open = self.deleted_open()
        for folder in self.folders:
            with suppress(OSError):
                try:
                    yield from measure_disk_use(folder, self.since_ns, on_denied=self.note_denied)
                except PermissionError:  # of the folder itself
                    self.note_denied()
        yield from deleted_open


class FileCount:
    """One count of files, in time slices; it stops when it exceeds the limits."""

    def __init__(self, names: Iterator[DiskUse], limits: Limits) -> None:
        self._limits = limits
        self._names = names
        self.total = DiskUse()
        self.spent_s = 0.0
        self.is_done = False

    def continue_for(self, slice_s: float, clock: Callable[[], float]) -> None:
        """Continue the count for about this long."""
        started = now = clock()
        while not self.is_done and now <= started + slice_s:
            for _ in range(_AT_ONCE):
                self._take_one()
            now = clock()
        self.spent_s += now - started

    @property
    def exceeds(self) -> bool:
        """Whether the total exceeds the limits."""
        return self.total.bytes > self._limits.disk_bytes or self.total.files > self._limits.disk_files

    def _take_one(self) -> None:
        if self.is_done:
            return
        try:
            self.total += next(self._names)
        except StopIteration:
            self.is_done = True
        except TooDeepError:  # a tree that cannot be counted counts as too large
            self.total += DiskUse(0, self._limits.disk_files + 1)
        self.is_done = self.is_done or self.exceeds


class DiskWatch:
    """Measures the files of one check while it runs, and decides DISK_LIMIT.

    `used`: the result of the last completed count; None before the first.
    """

    def __init__(
        self,
        additions: Additions,
        limits: Limits,
        floor: FreeSpaceFloor,
        *,
        clock: Callable[[], float] = time.monotonic,
        room_of: Callable[[Path], FreeSpace] = FreeSpace.of,
    ) -> None:
        """Raises: OSError when the first folder does not exist."""
        self.used: DiskUse | None = None
        self._additions = additions
        self._limits = limits
        self._floor = floor
        self._clock = clock
        self._room_of = room_of
        self._count: FileCount | None = None
        self._verdict: Verdict | None = None
        self._at_start = self._at_count = room_of(additions.folders[0])
        self._rested_at = clock()
        self._due_at = clock() + _FIRST_S

    def check_disk_limit(self) -> Verdict | None:
        """The `StopCondition`: DISK_LIMIT once the check's files exceed the limits, or the host's floor is reached.

        Takes about `SLICE_S` at most, or `URGENT_SLICE_S`. Never raises for the guest's changes to its files.
        """
        if self._verdict is None:
            with suppress(OSError):  # the folder was removed
                room = self._room_of(self._additions.folders[0])
                if self._is_exceeded(room) or self._takes_the_host_s(room):
                    self._verdict = Verdict.DISK_LIMIT
        return self._verdict

    def check_at_end(self) -> Verdict | None:
        """Asked once after the guest has ended: DISK_LIMIT if its files exceed the limits.

        A guest may write much between two looks and end. So the files are counted to the end if the file system grew
        since the last count; the limits bound how long that takes.
        """
        if self._verdict is None:
            with suppress(OSError):  # the folder was removed
                room = self._room_of(self._additions.folders[0])
                if self._count is not None or self._part_taken(self._at_count, room) > _WORTH_COUNTING:
                    denied = list[bool]()
                    count = self._files_that_are_left(partial(denied.append, True))
                    while not count.is_done:
                        count.continue_for(URGENT_SLICE_S, self._clock)
                    self.used, self._count, self._at_count = count.total, None, room
                    is_over = count.exceeds or (bool(denied) and self._part_taken(self._at_start, room) > 1)
                    self._verdict = Verdict.DISK_LIMIT if is_over else None
                if self._takes_the_host_s(room):
                    self._verdict = Verdict.DISK_LIMIT
        return self._verdict

    def count_at_end(self, seconds: float) -> None:
        """Count at the end of a check, for its report. If the time is too short, `used` keeps the last count."""
        count = self._files_that_are_left(_is_false)
        count.continue_for(seconds, self._clock)
        if count.is_done:
            self.used = count.total

    def _files_that_are_left(self, note_denied: Callable[[], object]) -> FileCount:
        """No process has deleted ones open any more, and the search for them is slow."""
        additions = replace(self._additions, deleted_open=_no_files, note_denied=note_denied)
        return FileCount(additions.measure_files(), self._limits)

    def _is_exceeded(self, room: FreeSpace) -> bool:
        if self._count is None:
            if not self._is_due(room):
                return False
            self._count, self._at_count = FileCount(self._additions.measure_files(), self._limits), room
        count = self._count
        urgent = self._floor.is_reached(room) or self._part_taken(self._at_start, room) > 1
        count.continue_for(URGENT_SLICE_S if urgent else SLICE_S, self._clock)
        if count.is_done:
            self.used, self._count = count.total, None
            self._rested_at = self._clock() + _PAUSE * count.spent_s
            self._due_at = self._clock() + max(_QUIET_S, 10 * _PAUSE * count.spent_s)
        return count.exceeds or (count.is_done and self._may_hide_growth(room))

    def _may_hide_growth(self, room: FreeSpace) -> bool:
        """Whether the file system grew by more than the budget since the start, while the check may have files open
        that no table of a process shows.

        What others wrote counts here too: the kernel does not say the size of such files, and few programs leave any.
        """
        return self._part_taken(self._at_start, room) > 1 and self._additions.may_hide_files()

    def _takes_the_host_s(self, room: FreeSpace) -> bool:
        """Whether the host's floor is reached, and by this check as far as the last completed count says. With signs of
        files that no count shows it may have taken all that is gone.
        """
        own = self.used
        if own is None:
            return False
        if self._additions.may_hide_files():
            before = self._at_start
            own = DiskUse(
                max(own.bytes, room.used_bytes - before.used_bytes), max(own.files, room.used_files - before.used_files)
            )
        return self._floor.is_reached_by(own, self._at_start, room)

    def _is_due(self, room: FreeSpace) -> bool:
        now = self._clock()
        if self._floor.is_reached(room) and now >= self._rested_at:
            return True
        grown = self._part_taken(self._at_count, room) > _WORTH_COUNTING
        return now >= self._due_at or (grown and now >= self._rested_at)

    def _part_taken(self, before: FreeSpace, now: FreeSpace) -> float:
        """Return the growth of the whole file system between two measurements, as a part of the budget."""
        return max(
            (now.used_bytes - before.used_bytes) / self._limits.disk_bytes,
            (now.used_files - before.used_files) / self._limits.disk_files,
        )
