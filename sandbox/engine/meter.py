"""Resource usage of one check in a container that ran other checks before: values at its end minus those at its start.

The kernel's sums only grow, so a difference is exact. Its peaks belong to the container, not to the check. The memory
peak is reset where the kernel allows it (version 1: write 0 to memory.max_usage_in_bytes; version 2: write to
memory.peak, which applies to that open file only, Linux 6.12). The pids peak cannot be reset. A peak that grew during
the check is the check's peak. Otherwise pids are the largest sample, and memory is unknown, which is not zero.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from sandbox.engine.cgroups import SAMPLE_INTERVAL_S, CgroupPaths, Counters, read_counters, read_current_pids
from sandbox.engine.pressure import PressureReading, compare_readings, read_pressure
from sandbox.engine.sample_series import ReadDiskUsed, SampleSeries, find_no_disk
from sandbox.models import Pressure, UsageSample

_Number = TypeVar("_Number", int, float)


class Meter:
    """Reads counters between enter and exit; `sample` may be called at any rate, from the same thread.

    Pressure is read at the start and at the end only: its sums survive, and each reading costs six files.
    """

    def __init__(
        self,
        paths: CgroupPaths | None,
        *,
        is_first: bool = False,
        disk_used: ReadDiskUsed = find_no_disk,
        reader: Callable[[CgroupPaths], Counters] = read_counters,
        pressure_reader: Callable[[CgroupPaths], PressureReading] = read_pressure,
    ) -> None:
        """`is_first`: the container ran no check before, so its memory peak is that of this check or of its start.
        `disk_used`: for the samples.
        """
        self._paths = paths
        self._reader = reader
        self._pressure_reader = pressure_reader
        self._pressure_before = PressureReading()
        self._pressure: Pressure | None = None
        self._first = is_first
        self._before = Counters()
        self._latest = Counters()
        self._reset: _MemoryPeak | None = None
        self._pids: int | None = None
        self._due = 0.0
        self._series = None if paths is None else SampleSeries(paths, disk_used=disk_used)
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        if self._paths is not None:
            self._reset = _MemoryPeak(self._paths)
            self._started = time.monotonic()
            self.sample()
            self._before = self._latest
            self._pressure_before = self._pressure_reader(self._paths)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._due = 0.0
        self.sample(is_last=True)
        if self._paths is not None:
            self._pressure = compare_readings(self._pressure_before, self._pressure_reader(self._paths))
        if self._reset is not None:
            self._reset.close()

    def sample(self, *, is_last: bool = False) -> None:
        """Read the counters if a sample is due. At the end the container and its counters may be gone."""
        if self._paths is None or (now := time.monotonic()) < self._due:
            return
        self._due = now + SAMPLE_INTERVAL_S
        self._latest = self._latest.merge_max(self._reader(self._paths))
        self._pids = max((n for n in (self._pids, read_current_pids(self._paths)) if n is not None), default=None)
        if self._reset is not None:
            self._reset.read()
        if self._series is not None:
            self._series.add(now - self._started, self._latest, is_last=is_last)

    @property
    def samples(self) -> tuple[UsageSample, ...]:
        """Usage over time."""
        return self._series.samples if self._series is not None else ()

    @property
    def counters(self) -> Counters:
        """Usage since the start, as far as it was sampled."""
        before, latest = self._before, self._latest
        return Counters(
            cpu_time_s=_difference(before.cpu_time_s, latest.cpu_time_s),
            memory_peak_bytes=self._memory_peak(),
            pids_peak=_peak_if_higher(before.pids_peak, latest.pids_peak) or self._pids,
            oom_kills=_difference(before.oom_kills, latest.oom_kills),
            forks_refused=_difference(before.forks_refused, latest.forks_refused),
            pids_were_full_above=latest.pids_were_full_above,
            disk_written_bytes=_difference(before.disk_written_bytes, latest.disk_written_bytes),
            cpu_throttled_s=_difference(before.cpu_throttled_s, latest.cpu_throttled_s),
        )

    @property
    def pressure(self) -> Pressure | None:
        """How long tasks waited between enter and exit. None: unknown, or not ended yet."""
        return self._pressure

    def _memory_peak(self) -> int | None:
        if self._reset is not None and self._reset.peak is not None:
            return self._reset.peak
        if self._first:
            return self._latest.memory_peak_bytes
        return _peak_if_higher(self._before.memory_peak_bytes, self._latest.memory_peak_bytes)


class _MemoryPeak:
    """The kernel's memory peak since this object was created. `peak` None: it cannot be reset on this host."""

    def __init__(self, paths: CgroupPaths) -> None:
        self.peak: int | None = None
        self._fd = -1
        if paths.memory is None:
            return
        name = "memory.peak" if paths.version > 1 else "memory.max_usage_in_bytes"
        with suppress(OSError):
            fd = os.open(paths.memory / name, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.write(fd, b"0")
            except OSError:
                os.close(fd)
                raise
            self._fd = fd

    def read(self) -> None:
        if self._fd >= 0:
            with suppress(OSError, ValueError):
                self.peak = max(int(os.pread(self._fd, 64, 0)), self.peak or 0)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _difference(before: _Number | None, after: _Number | None) -> _Number | None:
    """None when either value is missing: without a first value there is no difference."""
    return None if after is None or before is None else after - before


def _peak_if_higher(before: int | None, after: int | None) -> int | None:
    """The peak if it grew; None when an earlier check reached it."""
    return after if before is not None and after is not None and after > before else None
