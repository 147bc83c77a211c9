"""Samples of a check's usage over time: four a second, and at most `MOST_SAMPLES` of a run of any length.

When there are too many, every second one is dropped, and from then on half as many are taken. So a short run is seen in
detail and a long one as a whole, in the same memory and in one small file.
"""

from __future__ import annotations

from collections.abc import Callable

from sandbox.engine.cgroups import CgroupPaths, Counters, read_current_memory, read_current_pids
from sandbox.models import UsageSample

ReadDiskUsed = Callable[[], int | None]
"""The bytes that the files of a check held when they were last counted; None if they were not."""


def find_no_disk() -> None:
    """A `ReadDiskUsed` where the size is not counted."""
    return


INTERVAL_S = 0.25
MOST_SAMPLES = 1200


class SampleSeries:
    """Samples of one run. `add` may be called at any rate, with the counters that were just read. `disk_used`: what
    its files hold, as far as that is known.
    """

    def __init__(
        self,
        paths: CgroupPaths,
        *,
        memory: Callable[[CgroupPaths], int | None] = read_current_memory,
        pids: Callable[[CgroupPaths], int | None] = read_current_pids,
        disk_used: ReadDiskUsed = find_no_disk,
        most: int = MOST_SAMPLES,
    ) -> None:
        self._paths, self._memory, self._pids, self._most = paths, memory, pids, most
        self._disk_used = disk_used
        self._interval_s, self._due_s = INTERVAL_S, 0.0
        self._first: Counters | None = None
        self._samples: list[UsageSample] = []

    def add(self, at_s: float, counters: Counters, *, is_last: bool = False) -> None:
        """Take a sample if it is time for one, or if it is the last. The first counters are those at the start."""
        if self._first is None:
            self._first = counters
        if at_s < self._due_s and not is_last:
            return
        self._due_s = at_s + self._interval_s
        self._samples.append(
            UsageSample(
                at_s=round(at_s, 3),
                cpu_time_s=_since(self._first.cpu_time_s, counters.cpu_time_s),
                memory_bytes=self._memory(self._paths),
                pids=self._pids(self._paths),
                disk_written_bytes=_bytes_since(self._first.disk_written_bytes, counters.disk_written_bytes),
                disk_used_bytes=self._disk_used(),
            )
        )
        if len(self._samples) >= self._most:
            self._interval_s *= 2
            del self._samples[1::2]

    @property
    def samples(self) -> tuple[UsageSample, ...]:
        """The samples so far, oldest first."""
        return tuple(self._samples)


def _since(before: float | None, now: float | None) -> float | None:
    return None if before is None or now is None else round(max(0.0, now - before), 4)


def _bytes_since(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else max(0, now - before)
