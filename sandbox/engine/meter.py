"""What one check used of a container in which others ran before: readings at its end less those at its start.

The kernel's sums only grow, so a difference is exact. Its peaks are the container's and not the check's: the one of
memory is reset where the kernel lets us (version 1: write 0 to memory.max_usage_in_bytes; version 2: write to
memory.peak, which counts for that open file only, Linux 6.12), that of pids cannot be. A peak that grew is this check's
all the same; else pids are what samples saw, and memory is unknown, which is not zero.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from sandbox.engine.cgroups import INTERVAL_S, CgroupPaths, Counters, pids_now, read

_Number = TypeVar("_Number", int, float)


class Meter:
    """Reads between enter and exit; `sample` may be called as often as one likes, from the same thread."""

    def __init__(
        self, paths: CgroupPaths | None, *, first: bool = False, reader: Callable[[CgroupPaths], Counters] = read
    ) -> None:
        """`first`: nobody used the container before, so its peak of memory is this check's, or that of its start."""
        self._paths = paths
        self._reader = reader
        self._first = first
        self._before = Counters()
        self._latest = Counters()
        self._reset: _MemoryPeak | None = None
        self._pids: int | None = None
        self._due = 0.0

    def __enter__(self) -> Self:
        if self._paths is not None:
            self._reset = _MemoryPeak(self._paths)
            self.sample()
            self._before = self._latest
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._due = 0.0
        self.sample()
        if self._reset is not None:
            self._reset.close()

    def sample(self) -> None:
        """Look again, if it is time: the container may be gone at the end, and its counters with it."""
        if self._paths is None or (now := time.monotonic()) < self._due:
            return
        self._due = now + INTERVAL_S
        self._latest = self._latest.merged(self._reader(self._paths))
        self._pids = max((n for n in (self._pids, pids_now(self._paths)) if n is not None), default=None)
        if self._reset is not None:
            self._reset.read()

    @property
    def counters(self) -> Counters:
        """What was used since the start, as far as seen."""
        before, latest = self._before, self._latest
        return Counters(
            cpu_time_s=_since(before.cpu_time_s, latest.cpu_time_s),
            memory_peak_bytes=self._memory_peak(),
            pids_peak=_grown(before.pids_peak, latest.pids_peak) or self._pids,
            oom_kills=_since(before.oom_kills, latest.oom_kills),
            forks_refused=_since(before.forks_refused, latest.forks_refused),
            disk_written_bytes=_since(before.disk_written_bytes, latest.disk_written_bytes),
        )

    def _memory_peak(self) -> int | None:
        if self._reset is not None and self._reset.peak is not None:
            return self._reset.peak
        if self._first:
            return self._latest.memory_peak_bytes
        return _grown(self._before.memory_peak_bytes, self._latest.memory_peak_bytes)


class _MemoryPeak:
    """The kernel's peak of memory since now. `peak` None: it cannot be reset here."""

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


def _since(before: _Number | None, after: _Number | None) -> _Number | None:
    """None before is a counter that appeared: then there is nothing to compare with."""
    return None if after is None or before is None else after - before


def _grown(before: int | None, after: int | None) -> int | None:
    """A peak that is higher than it was; None says that this check did not reach it."""
    return after if before is not None and after is not None and after > before else None
