"""What a run used while it ran."""

from __future__ import annotations

from sandbox.models.checks import Limits
from sandbox.models.model import Model


class UsageSample(Model):
    """The kernel's counters at one moment. `at_s`: since the start of the check. `cpu_time_s`, `disk_written_bytes`:
    used up to then, and files that were deleted or written again are in it. `memory_bytes`, `pids`: at that moment.
    `disk_used_bytes`: what the files held at the last count before, as `limits.disk_bytes` bounds it. None: this host
    does not count it, or it was not counted yet.
    """

    at_s: float
    cpu_time_s: float | None = None
    memory_bytes: int | None = None
    pids: int | None = None
    disk_written_bytes: int | None = None
    disk_used_bytes: int | None = None


class UsageSeries(Model):
    """The samples of one run, oldest first: four a second, fewer in a long run. `limits`: what was in force."""

    run_id: str
    check_id: str
    limits: Limits
    samples: tuple[UsageSample, ...]
