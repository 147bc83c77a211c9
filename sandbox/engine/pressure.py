"""How long tasks waited for CPU, memory and I/O while a check ran, as the kernel counts it: pressure stall information.

The sum `some` grows while at least one task waits. The guest's own control group says it of the guest. Where the group
has no such files (version 1 without a version 2 hierarchy beside it), the host's sums say it of all its tasks, the
guest's included. Files: Documentation/accounting/psi.rst in the kernel tree.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Literal

from sandbox.engine.cgroups import CgroupPaths
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern
from sandbox.models import Pressure

HOST_PRESSURE = Path("/proc/pressure")
_US_PER_S = 1e6
_SOME = lazy_pattern(r"^some .*\btotal=(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class WaitSums:
    """Seconds in which at least one task waited, so far. None: the kernel does not count it."""

    cpu_s: float | None = None
    memory_s: float | None = None
    io_s: float | None = None

    def since(self, before: WaitSums) -> WaitSums:
        """What was added since an earlier reading; None where either value is missing."""
        return WaitSums(
            cpu_s=_difference(before.cpu_s, self.cpu_s),
            memory_s=_difference(before.memory_s, self.memory_s),
            io_s=_difference(before.io_s, self.io_s),
        )


@dataclass(frozen=True)
class PressureReading:
    """The sums of the guest and of the host at one moment. The guest's are lost when its control group ends."""

    guest: WaitSums = WaitSums()
    host: WaitSums = WaitSums()


def counts_pressure() -> bool:
    """Whether the kernel counts how long the tasks of this host wait."""
    return _read_sums(HOST_PRESSURE) != WaitSums()


def read_pressure(paths: CgroupPaths, host: Path = HOST_PRESSURE) -> PressureReading:
    """Read one sample. Never raises: a value that cannot be read is None."""
    guest = WaitSums() if paths.pressure is None else _read_sums(paths.pressure, ".pressure")
    return PressureReading(guest=guest, host=_read_sums(host))


def compare_readings(before: PressureReading, after: PressureReading) -> Pressure | None:
    """The waits between two readings: those of the guest, else those of the host; None if neither is known. Pure."""
    found: tuple[tuple[Literal["guest", "host"], WaitSums], ...] = (
        ("guest", after.guest.since(before.guest)),
        ("host", after.host.since(before.host)),
    )
    for of, sums in found:
        if sums != WaitSums():
            return Pressure(of=of, cpu_s=sums.cpu_s, memory_s=sums.memory_s, io_s=sums.io_s)
    return None


def _read_sums(folder: Path, suffix: str = "") -> WaitSums:
    cpu, memory, disk = (_read_sum(f"{folder}/{name}{suffix}") for name in ("cpu", "memory", "io"))
    return WaitSums(cpu_s=cpu, memory_s=memory, io_s=disk)


def _read_sum(path: str) -> float | None:
    """Without PSI (`CONFIG_PSI`, `psi=1`) the file is missing, or reading it fails with EOPNOTSUPP."""
    try:
        with io.FileIO(path) as file:
            found = _SOME.search(file.readall().decode("ascii"))
    except (OSError, UnicodeDecodeError):
        return None
    return int(found[1]) / _US_PER_S if found else None


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else round(after - before, 6)
