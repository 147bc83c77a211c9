"""Resource usage of a running container, read from its control groups. The guest cannot forge it. Local engines only.

Version 1 has one hierarchy for each controller, version 2 one for all. Counters disappear with the container, so they
are sampled while it runs. Files: Documentation/admin-guide/cgroup-v1/*.rst and cgroup-v2.rst in the kernel tree.
"""

from __future__ import annotations

import io
import os
import re
import threading
from collections.abc import Callable, Iterable
from enum import Enum, auto
from functools import cache
from itertools import dropwhile
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Self, TypeVar

from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern

CGROUP_ROOT = Path("/sys/fs/cgroup")
SAMPLE_INTERVAL_S = 0.04
_NS_PER_S = 1e9
_US_PER_S = 1e6
UNLIMITED = 1 << 60
"""Version 1 shows the largest number of whole pages where there is no limit."""

SOCKET_LIMIT = "memory.kmem.tcp.limit_in_bytes"
"""Version 1: of a group's network buffers (socket_memory.py)."""

_KERNEL_PARTS = ("slab_unreclaimable", "kernel_stack", "pagetables", "percpu", "vmalloc")
_CRUNS_GROUP, _PODMANS = "container", "libpod-"
_JOINT = ("cpu,cpuacct", "cpuacct,cpu")
_BLOCK_DEVICES = Path("/sys/dev/block")
_LOOP_MAJOR = "7:"
_CONTAINER_ID = lazy_pattern(r"[0-9a-f]{64}")
_WRITTEN = lazy_pattern(r"^(\d+:\d+) .*?\bwbytes=(\d+)", re.MULTILINE)
_Number = TypeVar("_Number", int, float)


class _BlockDevice(Enum):
    """`VOLUME`: made of other devices."""

    LOOP = auto()
    VOLUME = auto()
    DISK = auto()


@dataclass(frozen=True)
class CgroupPaths:
    """Controller directories of one container; on version 2 they are all the same. None: not found, or not used.

    `quota`: of the limit on CPU time. `pressure`: on version 1 that of a version 2 hierarchy without controllers, which
    systemd mounts beside it.
    """

    version: int
    cpu: Path | None = None
    memory: Path | None = None
    pids: Path | None = None
    io: Path | None = None
    quota: Path | None = None
    pressure: Path | None = None


@dataclass(frozen=True)
class Counters:
    """The kernel's counters so far. None means that this host does not count it; None is never the same as zero.

    `disk_written_bytes` is None on version 1: its block counters miss data that is written back later (seen: 0 after
    50 MB and a sync on Linux 6.18). `cpu_throttled_s`: time in which the limit on CPUs held tasks back, over all CPUs.
    `pids_were_full_above`: if forks were refused, whether a group above ever reached its limit of processes.
    """

    cpu_time_s: float | None = None
    memory_peak_bytes: int | None = None
    pids_peak: int | None = None
    oom_kills: int | None = None
    forks_refused: int | None = None
    pids_were_full_above: bool | None = None
    disk_written_bytes: int | None = None
    cpu_throttled_s: float | None = None

    def merge_max(self, other: Counters) -> Counters:
        """Take the larger value of each field: every counter only grows. A missing value is ignored."""
        return Counters(
            cpu_time_s=_max_known(self.cpu_time_s, other.cpu_time_s),
            memory_peak_bytes=_max_known(self.memory_peak_bytes, other.memory_peak_bytes),
            pids_peak=_max_known(self.pids_peak, other.pids_peak),
            oom_kills=_max_known(self.oom_kills, other.oom_kills),
            forks_refused=_max_known(self.forks_refused, other.forks_refused),
            pids_were_full_above=_any_known(self.pids_were_full_above, other.pids_were_full_above),
            disk_written_bytes=_max_known(self.disk_written_bytes, other.disk_written_bytes),
            cpu_throttled_s=_max_known(self.cpu_throttled_s, other.cpu_throttled_s),
        )


def find_delegated_group(uid: int) -> Path:
    """The group of version 2 that a user's systemd, and so a rootless engine, has for itself. It may not exist."""
    return CGROUP_ROOT / "user.slice" / f"user-{uid}.slice" / f"user@{uid}.service"


def find_cgroups(container_pid: int, root: Path = CGROUP_ROOT, proc: Path = Path("/proc")) -> CgroupPaths | None:
    """Find the control groups of a process of the container; None when it has ended or its groups are not visible."""
    try:
        text = (proc / str(container_pid) / "cgroup").read_text(encoding="utf-8")
    except OSError:
        return None
    groups = dict(_parse_groups(text))
    if (root / "cgroup.controllers").is_file():
        one = _find_directory(root, _limited_group(groups.get("", "")))
        return CgroupPaths(2, one, one, one, one, one, one) if one else None
    return CgroupPaths(
        1,
        cpu=_find_v1_directory(root, groups, "cpuacct"),
        memory=_find_v1_directory(root, groups, "memory"),
        pids=_find_v1_directory(root, groups, "pids"),
        quota=_find_v1_directory(root, groups, "cpu"),
        pressure=_find_directory(root / "unified", groups.get("", "")),
    )


def read_counters(paths: CgroupPaths) -> Counters:
    """Read one sample. Never raises: a value that cannot be read is None."""
    return _read_v2(paths) if paths.version > 1 else _read_v1(paths)


def read_current_pids(paths: CgroupPaths) -> int | None:
    """Count the threads in the container at this moment."""
    return _read_number(paths.pids, "pids.current")


def read_current_memory(paths: CgroupPaths) -> int | None:
    """Bytes that are charged to the container at this moment, with its page cache, as its limit counts them."""
    return _read_number(paths.memory, "memory.current" if paths.version > 1 else "memory.usage_in_bytes")


def read_limit(folder: Path | None, name: str) -> int | None:
    """The number in a file of a group that holds a limit; None without a limit."""
    number = _read_number(folder, name)
    return number if number is not None and number < UNLIMITED else None


def read_memory_limit(folder: Path | None, version: int) -> int | None:
    """The limit on memory of a group; None without one."""
    return read_limit(folder, "memory.max" if version > 1 else "memory.limit_in_bytes")


def read_held_memory(paths: CgroupPaths) -> int | None:
    """Bytes that no file of a disk holds: memory of processes, tmpfs and shared memory. The page cache is not counted:
    the kernel takes it back when another needs it.
    """
    names = ("anon", "shmem") if paths.version > 1 else ("total_rss", "total_shmem")
    found = [_read_keyed_number(paths.memory, "memory.stat", name) for name in names]
    return None if None in found else sum(number or 0 for number in found)


def share_of_sockets(memory_bytes: int) -> int:
    """What network buffers may hold on version 1 before they are slowed down. Many connections at once stall with less
    (ADR 183); the watch bounds memory and buffers together (socket_memory.py).
    """
    return memory_bytes // 2


def read_charged_sockets(paths: CgroupPaths) -> int:
    """Bytes in network buffers that are charged to a group; 0 if it is not known (socket_memory.py)."""
    if paths.version > 1:
        return _read_keyed_number(paths.memory, "memory.stat", "sock") or 0
    return _read_number(paths.memory, "memory.kmem.tcp.usage_in_bytes") or 0


def read_kernel_memory(paths: CgroupPaths) -> int:
    """Bytes of the kernel's own that are charged to a group: message queues, semaphores and empty files of a tmpfs keep
    them without a process. Version 1 counts caches too that the kernel takes back, version 2 does not. 0: unknown.
    """
    if paths.version == 1:
        return _read_number(paths.memory, "memory.kmem.usage_in_bytes") or 0
    found = dict(re.findall(r"^(\w+) (\d+)$", _read_text(paths.memory, "memory.stat") or "", re.MULTILINE))
    if "kernel" in found:  # Linux 5.18
        return max(int(found["kernel"]) - int(found.get("slab_reclaimable", 0)), 0)
    return sum(int(found.get(name, 0)) for name in _KERNEL_PARTS)


def list_processes(paths: CgroupPaths) -> tuple[int, ...]:
    """List the processes in the container's own group, as host pids; groups below it are not included."""
    text = _read_text(paths.pids, "cgroup.procs") or ""
    return tuple(int(word) for word in text.split() if word.isdigit())


def list_guest_processes(paths: CgroupPaths) -> list[int]:
    """As `list_processes`, with those of the group below that crun makes."""
    below = _group_of_processes(paths.pids)
    return [*list_processes(paths), *(list_processes(CgroupPaths(paths.version, pids=below)) if below else ())]


class Sampler:
    """Samples in a thread between enter and exit and keeps the largest values.

    The kernel keeps `oom_kills` and the peaks, so only events after the last sample can be missed.
    """

    def __init__(
        self,
        paths: CgroupPaths | None,
        *,
        interval_s: float = SAMPLE_INTERVAL_S,
        reader: Callable[[CgroupPaths], Counters] = read_counters,
    ) -> None:
        self._paths = paths
        self._interval_s = interval_s
        self._reader = reader
        self._stop = threading.Event()
        self._counters = Counters()
        self._thread = threading.Thread(target=self._run, name="cgroup-sampler", daemon=True)

    @property
    def counters(self) -> Counters:
        """The largest values so far."""
        return self._counters

    def __enter__(self) -> Self:
        self._sample()
        if self._paths is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._sample()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._sample()

    def _sample(self) -> None:
        if self._paths is not None:
            self._counters = self._counters.merge_max(self._reader(self._paths))


def _read_v1(paths: CgroupPaths) -> Counters:
    refused = _read_keyed_number(paths.pids, "pids.events", "max")
    return Counters(
        cpu_time_s=_to_seconds(_read_number(paths.cpu, "cpuacct.usage"), _NS_PER_S),
        memory_peak_bytes=_read_number(paths.memory, "memory.max_usage_in_bytes"),
        pids_peak=_read_number(paths.pids, "pids.peak", "pids.current"),  # peak: Linux 6.1
        oom_kills=_read_keyed_number(paths.memory, "memory.oom_control", "oom_kill"),
        forks_refused=refused,
        pids_were_full_above=_were_pids_full_above(paths.pids) if refused else None,
        cpu_throttled_s=_to_seconds(_read_keyed_number(paths.quota, "cpu.stat", "throttled_time"), _NS_PER_S),
    )


def _read_v2(paths: CgroupPaths) -> Counters:
    refused = _count_refused_forks(paths.pids)
    return Counters(
        cpu_time_s=_to_seconds(_read_keyed_number(paths.cpu, "cpu.stat", "usage_usec"), _US_PER_S),
        memory_peak_bytes=_read_number(paths.memory, "memory.peak", "memory.current"),  # 5.19
        pids_peak=_read_number(paths.pids, "pids.peak", "pids.current"),  # 6.1
        oom_kills=_read_keyed_number(paths.memory, "memory.events", "oom_kill"),
        forks_refused=refused,
        pids_were_full_above=_were_pids_full_above(paths.pids) if refused else None,
        disk_written_bytes=None if (lines := _read_text(paths.io, "io.stat")) is None else sum_written_bytes(lines),
        cpu_throttled_s=_to_seconds(_read_throttled(paths.quota), _US_PER_S),
    )


def _count_refused_forks(pids: Path | None) -> int | None:
    """Forks that a limit refused: the group's own, and that of the group of all guests above it. Since Linux 6.11 the
    group with the limit counts them, not the one that forked (cgroup-v2.rst, `pids.events`). Before, crun's guest forks
    in a group below, which alone counts it.
    """
    own = _read_keyed_number(pids, "pids.events", "max")
    above = None if pids is None else _read_keyed_number(pids.parent, "pids.events.local", "max")
    below = _group_of_processes(pids)
    is_counted = _read_text(below, "pids.events.local") is not None  # by the group above it
    forked = None if is_counted else _read_keyed_number(below, "pids.events", "max")
    return None if own is None else own + (above or 0) + (forked or 0)


def _read_throttled(quota: Path | None) -> int | None:
    """Microseconds. crun sets the quota on the group below, too: the tighter of two counts."""
    both = (quota, _group_of_processes(quota))
    found = [_read_keyed_number(group, "cpu.stat", "throttled_usec") for group in both if group is not None]
    return max((number for number in found if number is not None), default=None)


def _were_pids_full_above(pids: Path | None) -> bool | None:
    """Whether a group above ever had as many processes as it may. None: unknown, without `pids.peak` (Linux 6.1) or
    where groups above are in another namespace.

    On version 1, and on version 2 before Linux 6.11, a refused fork counts in the group that forked, whichever group
    had the limit. But a group refuses only at its limit, and its peak never falls: without a group that was full, each
    refusal was by the group's own limit. The other way round it is not known.
    """
    for group in pids.parents if pids is not None else ():
        if _read_text(group, "pids.max") is None:  # the root of the hierarchy has none
            return False if (group / "cgroup.procs").exists() else None
        limit, peak = read_limit(group, "pids.max"), _read_number(group, "pids.peak")
        if peak is None:
            return None
        if limit is not None and peak >= limit:
            return True
    return None


def _parse_groups(text: str) -> Iterable[tuple[str, str]]:
    """Parse `/proc/<pid>/cgroup`: `<hierarchy>:<controllers>:<path>` lines; the version 2 line has no controllers."""
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, separator, path = rest.partition(":")
        if separator:
            for controller in controllers.split(","):
                yield controller, path


def _limited_group(path: str) -> str:
    """The group of a container that has its limits: Podman's crun puts the processes one group below it (crun(1),
    `run.oci.systemd.subgroup`; `libpod-ID.scope/container`).
    """
    above, _, last = path.rpartition("/")
    return above if last == _CRUNS_GROUP and above.rpartition("/")[2].startswith(_PODMANS) else path


def _group_of_processes(limited: Path | None) -> Path | None:
    """The other way round; None where the group with the limits has the processes."""
    return limited / _CRUNS_GROUP if limited is not None and limited.name.startswith(_PODMANS) else None


def _find_v1_directory(root: Path, groups: dict[str, str], controller: str) -> Path | None:
    """Find a controller's directory. Hierarchies may be mounted jointly (`cpu,cpuacct`), with links for each."""
    for name in (controller, *(joint for joint in _JOINT if controller in joint.split(","))):
        found = _find_directory(root / name, groups.get(controller, ""))
        if found is not None:
            return found
    return None


def _find_directory(root: Path, path: str) -> Path | None:
    """None for the host's root group, which is not a container's, and for a group that is not below `root`.

    A group outside of our namespace is shown from it: `/../../space/ID`. It is below `root` still where the hierarchy
    is mounted from its top, as in the manifests under `deploy/`: there, or deeper if the two have a parent in common,
    since names above that are left out (cgroup_namespaces(7)). The id of a container tells its group from others.
    """
    parts = [*dropwhile(lambda part: part in ("/", ".."), PurePosixPath(path).parts)]
    if not parts or ".." in parts:
        return None
    found = root.joinpath(*parts)
    if found.is_dir():
        return found
    is_outside = path.startswith("/..") and _CONTAINER_ID.search(path)
    return _find_deeper(root, "/".join(parts)) if is_outside else None


def _find_deeper(root: Path, names: str) -> Path | None:
    """The group of these names below any other."""
    for folder, _, _ in os.walk(root):
        if os.path.isdir(f"{folder}/{names}"):  # noqa: PTH112 - thousands of calls
            return Path(folder, names)
    return None


def _read_text(folder: Path | None, name: str) -> str | None:
    """Read a file. Called often while a check runs: without pathlib and buffers it takes half the time."""
    if folder is None:
        return None
    try:
        with io.FileIO(f"{folder}/{name}") as file:
            return file.readall().decode("ascii")
    except (OSError, UnicodeDecodeError):
        return None


def _read_number(folder: Path | None, *names: str) -> int | None:
    """Return the number in the first of these files that holds one."""
    for name in names:
        text = (_read_text(folder, name) or "").strip()
        if text.isdigit():
            return int(text)
    return None


def _read_keyed_number(folder: Path | None, name: str, key: str) -> int | None:
    found = re.search(rf"^{key} (\d+)$", _read_text(folder, name) or "", re.MULTILINE)
    return int(found[1]) if found else None


def sum_written_bytes(lines: str, devices: Path = _BLOCK_DEVICES) -> int:
    """Bytes written to block devices, from the lines of `io.stat`, one for each device.

    The kernel counts a transfer at each device that it passes: the loop device of a task's own disk, a volume (LVM,
    LUKS, RAID), the disk. Not every one passes it on with the guest's name. So the largest sum of one kind is taken.
    No line, before the first transfer, is zero.
    """
    sums = dict.fromkeys(_BlockDevice, 0)
    for device, written in _WRITTEN.findall(lines):
        sums[_find_kind(device, devices)] += int(written)
    return max(sums.values())


@cache
def _find_kind(device: str, devices: Path) -> _BlockDevice:
    """`device`: 'major:minor'. Source: Documentation/ABI/stable/sysfs-block in the kernel tree."""
    if device.startswith(_LOOP_MAJOR):
        return _BlockDevice.LOOP
    try:
        return _BlockDevice.VOLUME if os.listdir(devices / device / "slaves") else _BlockDevice.DISK  # noqa: PTH208
    except OSError:
        return _BlockDevice.DISK


def _to_seconds(value: int | None, per_second: float) -> float | None:
    return None if value is None else value / per_second


def _max_known(one: _Number | None, other: _Number | None) -> _Number | None:
    return one if other is None else other if one is None else max(one, other)


def _any_known(one: bool | None, other: bool | None) -> bool | None:
    return one if other is None else other if one is None else one or other
