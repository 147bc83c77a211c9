"""What a guest uses of its limits at this moment, read from its control groups. Without the engine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sandbox.engine.cgroups import (
    CgroupPaths,
    read_counters,
    read_current_pids,
    read_held_memory,
    read_limit,
    read_memory_limit,
)
from sandbox.engine.guest_group import GroupHost, group_names


@dataclass(frozen=True)
class GuestUsage:
    """Usage and limits of one guest. None: not counted on this host; for a limit also that there is none.

    `memory_bytes`: without the page cache. `cpus_limit`: CPU time for each second.
    """

    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    cpu_time_s: float | None = None
    cpus_limit: float | None = None
    pids: int | None = None
    pids_limit: int | None = None


def find_guest_cgroups(host: GroupHost, container_id: str, group: str) -> CgroupPaths | None:
    """Find the control groups of a container by its id: below the group of all guests, or below the engine's own.

    None if it does not run, or if the engine uses another parent.
    """
    parents = [host.find_directory(group, "memory")] if group else []
    parents.append(host.find_hierarchy("memory") / host.default_parent)
    places = (parent / name for parent in parents for name in group_names(container_id))
    memory = next((place for place in places if place.is_dir()), None)
    if memory is None:
        return None
    below = memory.relative_to(host.find_hierarchy("memory"))
    cpu, pids = (host.find_hierarchy(controller) / below for controller in ("cpu", "pids"))
    accounts = cpu if host.version > 1 else host.find_hierarchy("cpuacct") / below
    return CgroupPaths(host.version, cpu=accounts, memory=memory, pids=pids, io=None, quota=cpu)


def read_guest_usage(paths: CgroupPaths) -> GuestUsage:
    """Read one sample. Never raises: a value that cannot be read is None."""
    counters = read_counters(paths)
    return GuestUsage(
        memory_bytes=read_held_memory(paths),
        memory_limit_bytes=read_memory_limit(paths.memory, paths.version),
        cpu_time_s=counters.cpu_time_s,
        cpus_limit=_read_cpus(paths),
        pids=read_current_pids(paths),
        pids_limit=read_limit(paths.pids, "pids.max"),
    )


def _read_cpus(paths: CgroupPaths) -> float | None:
    """The quota on CPU time over its period. `max` and -1 mean that there is none."""
    if paths.version > 1:
        words = _read_words(paths.quota, ("cpu.max",))
    else:
        words = _read_words(paths.quota, ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
    return int(words[0]) / int(words[1]) if len(words) == 2 and all(w.isdigit() and int(w) for w in words) else None


def _read_words(folder: Path | None, names: Iterable[str]) -> list[str]:
    """The words of these files together; none if one cannot be read."""
    try:
        return [] if folder is None else " ".join((folder / n).read_text(encoding="ascii") for n in names).split()
    except (OSError, UnicodeDecodeError):
        return []
