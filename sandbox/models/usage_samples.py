"""What a run used while it ran."""

from __future__ import annotations

from sandbox.models.checks import Limits
from sandbox.models.model import Model


class UsageSample(Model):
    """The kernel's counters at one moment. `at_s`: since the start of the check. `cpu_time_s`, `disk_written_bytes`:
    used up to then. `memory_bytes`, `pids`: at that moment. None: this host does not count it.
    """

    at_s: float
    cpu_time_s: float | None = None
    memory_bytes: int | None = None
    pids: int | None = None
    disk_written_bytes: int | None = None


class UsageSeries(Model):
    """The samples of one run, oldest first: four a second, fewer in a long run. `limits`: what was in force."""

    run_id: str
    check_id: str
    limits: Limits
    samples: tuple[UsageSample, ...]
