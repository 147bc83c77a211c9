"""The control group above all guests of a host: its limits hold for all of them together.

Each container has limits of its own, but these do not limit the sum: of checks that run at the same time, and of idle
containers that hold files in memory. The kernel enforces a limit of a group for everything below it. The group is
made and limited by a controller that is root; any controller of the host may put its guests there.

With the engine's driver `cgroupfs` the group is a directory at the top of the hierarchies. With the driver `systemd` it
is a slice, which systemd alone may make and change. The slices of a rootless engine belong to the systemd of its user,
below the group that root's systemd delegated to it, and the controller of that user may make and limit them.

Files: Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst in the kernel tree; systemd.resource-control(5).
Seen: cgroupfs on version 1 (Linux 6.18, Docker 20.10).
"""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from sandbox.byte_sizes import format_bytes
from sandbox.engine.cgroups import (
    CGROUP_ROOT,
    SOCKET_LIMIT,
    UNLIMITED,
    CgroupPaths,
    find_delegated_group,
    read_held_memory,
    read_memory_limit,
    share_of_sockets,
)
from sandbox.engine.products import is_podman, is_rootless, list_bindable_cpus
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass

_CPUSET = "cpuset"
SYSTEMCTL = "/usr/bin/systemctl"
_SYSTEMCTL_S = 20.0
_SETTLING_S = 1.0
_JOINT = {name: (name, "cpu,cpuacct", "cpuacct,cpu") for name in ("cpu", "cpuacct")}
_MAX_SHARES = 262_144
_DEFAULT_PARENTS = {"cgroupfs": "docker", "systemd": "system.slice"}
_PODMAN_PARENTS = {"cgroupfs": "libpod_parent", "systemd": "machine.slice"}

RunSystemctl = Callable[[Sequence[str]], None]
"""Runs systemctl with these arguments. Raises: OSError."""


@dataclass(frozen=True)
class GroupLimits:
    """What all guests together may use. `cpu_shares`: their weight beside other groups of a busy host, 2 to 262,144."""

    memory_bytes: int
    pids: int
    cpu_shares: int


@dataclass(frozen=True)
class GuestGroup:
    """The group as it is. `parent`: the engine's name of it; empty: guests have none. `memory`: its directory.

    `memory_bytes`: the limit in force; None: there is none. `obstacle`: what is not as it should be, and why.
    """

    parent: str = ""
    memory_bytes: int | None = None
    obstacle: str = ""
    memory: CgroupPaths | None = None

    def read_held_bytes(self) -> int | None:
        """Memory that all guests hold, without the page cache; None if it cannot be read."""
        return read_held_memory(self.memory) if self.memory else None

    def read_held_bytes_of(self, container_id: str) -> int:
        """Memory that one guest holds; 0 if it cannot be read."""
        if self.memory is None or self.memory.memory is None:
            return 0
        names = group_names(container_id)
        found = (CgroupPaths(self.memory.version, memory=self.memory.memory / name) for name in names)
        return next((held for paths in found if (held := read_held_memory(paths)) is not None), 0)


def group_names(container_id: str) -> tuple[str, ...]:
    """What engines call the group of a container: Docker and Podman, with each driver."""
    plain = (container_id, f"libpod-{container_id}")
    return *plain, *(f"{engine}-{container_id}.scope" for engine in ("docker", "libpod"))


def run_systemctl(arguments: Sequence[str]) -> None:
    """Raises: OSError, with what systemctl said. Only root: systemd would ask other users for a password."""
    if os.geteuid() != 0:
        raise PermissionError(errno.EPERM, "only root may change slices of systemd")
    _run_systemctl(arguments, os.environ)


def run_user_systemctl(arguments: Sequence[str]) -> None:
    """For the systemd of this user. Raises: OSError, with what systemctl said."""
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    _run_systemctl(("--user", *arguments), {**os.environ, "XDG_RUNTIME_DIR": runtime})


def _run_systemctl(arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - a constant program; names come from the policy
            [SYSTEMCTL, "--no-ask-password", *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_SYSTEMCTL_S,
            check=False,
            env=environ,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"systemctl did not answer within {_SYSTEMCTL_S:g} s") from error
    if done.returncode:
        raise OSError(done.stderr.decode(errors="replace").strip()[:300] or f"systemctl: status {done.returncode}")


@dataclass(frozen=True)
class GroupHost:
    """The control groups of this host, as the engine uses them. `driver`: `cgroupfs` or `systemd`. `root`: above all
    groups of the engine. `default_parent`: below it, of containers that name none.
    """

    driver: str
    version: int
    root: Path = CGROUP_ROOT
    systemctl: RunSystemctl = field(default=run_systemctl)
    default_parent: str = ""

    def find_directory(self, name: str, controller: str) -> Path:
        """The directory of the group `name` in the hierarchy of a controller; it may not exist."""
        path = _slice_path(name) if self.driver == "systemd" else name
        return self.find_hierarchy(controller) / path

    def find_hierarchy(self, controller: str) -> Path:
        """The directory of all groups of a controller."""
        if self.version > 1:
            return self.root
        names = _JOINT.get(controller, (controller,))
        return next((self.root / n for n in names if (self.root / n).is_dir()), self.root / controller)

    def read_controllers(self) -> frozenset[str]:
        """What the groups of the engine can count and limit, on version 2; empty if it cannot be read."""
        return frozenset(_read(self.root / "cgroup.controllers").split())


def read_group_host(info: Mapping[str, Any]) -> GroupHost | None:
    """From the engine's `GET /info`; None for an engine without control groups (a rootless one may have none)."""
    driver, version = str(info.get("CgroupDriver") or ""), str(info.get("CgroupVersion") or "1")
    if driver not in _DEFAULT_PARENTS or version not in {"1", "2"}:
        return None
    if not is_rootless(info):
        parents = _PODMAN_PARENTS if is_podman(info) else _DEFAULT_PARENTS
        return GroupHost(driver, int(version), default_parent=parents[driver])
    delegated = find_delegated_group(os.geteuid())
    return GroupHost(driver, int(version), delegated, run_user_systemctl, "user.slice") if driver == "systemd" else None


def find_bindable_cpus(info: Mapping[str, Any], name: str = "") -> tuple[int, ...]:
    """The CPUs of which guests in the group `name` can get their own; none: they see all. See `list_bindable_cpus`."""
    host = read_group_host(info)
    return list_bindable_cpus(info, read_effective_cpus(host, name)) if host else ()


def read_effective_cpus(host: GroupHost, name: str) -> str:
    """The CPUs that are online and that the group of all guests may use, as the kernel lists them; '' if unknown. A
    group of version 1 without guests has none yet: those of the groups of the engine then.
    """
    folders = [host.find_directory(name, _CPUSET)] if name else []
    files = ("cpuset.cpus.effective",) if host.version > 1 else ("cpuset.effective_cpus", "cpuset.cpus")
    found = (_read(folder / file) for folder in (*folders, host.find_hierarchy(_CPUSET)) for file in files)
    return next(filter(None, found), "")


def parent_name(name: str, driver: str) -> str:
    """What the engine calls the group (`HostConfig.CgroupParent`); empty for no group."""
    if not name:
        return ""
    return f"{name}.slice" if driver == "systemd" else f"/{name}"


def ensure_guest_group(host: GroupHost | None, name: str, limits: GroupLimits) -> GuestGroup:
    """Make the group and set its limits, as far as this process may and they differ. Costs three small reads when all
    is as it should be. Never raises: `obstacle` says what is wrong.

    Guests of a controller that may not make the group still use one that exists: another controller limits it.
    """
    if host is None or not name:
        return GuestGroup(
            obstacle="the container policy names no group" if host else "the engine has no control groups"
        )
    folders = {controller: host.find_directory(name, controller) for controller in ("memory", "pids", "cpu")}
    paths = CgroupPaths(host.version, memory=folders["memory"])
    obstacle = ""
    if not _is_as_wanted(host, folders, limits):
        try:
            _require_room(paths, limits)
            _apply_limits(host, name, folders, limits)
        except OSError as error:
            obstacle = _describe(error)
    bound = read_memory_limit(folders["memory"], host.version)
    if bound is None:
        return GuestGroup(obstacle=obstacle or f"{folders['memory']} has no limit")
    return GuestGroup(parent_name(name, host.driver), bound, obstacle, paths)


def remove_guest_group(host: GroupHost, name: str) -> None:
    """Remove a group without guests. A runtime makes it in every hierarchy. Never raises."""
    if host.driver == "systemd":
        for verb in ("stop", "revert"):
            with suppress(OSError):
                host.systemctl((verb, f"{name}.slice"))
        return
    for folder in (host.root / name, *host.root.glob(f"*/{name}")):
        with suppress(OSError):
            folder.rmdir()


def require_in_group(paths: CgroupPaths | None, parent: str) -> None:
    """Raises: `policy_violation` for a guest that is not in the group it was created for. If the group of a guest
    cannot be found, the guest has ended.
    """
    if not parent or paths is None or paths.memory is None:
        return
    if paths.memory.parent.name != parent.removeprefix("/"):
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            "The guest is not in the control group of all guests and was stopped",
            details=f"{paths.memory} is not below {parent}",
            hint="The engine or its runtime ignores the option `CgroupParent`. To run without a bound for all guests, "
            'set group = "" in policies/container.toml (docs/configuration.md).',
        )


def _slice_path(name: str) -> str:
    """Where systemd puts a slice: `a-b.slice` is below `a.slice` (systemd.slice(5))."""
    words = name.split("-")
    return "/".join(f"{'-'.join(words[: n + 1])}.slice" for n in range(len(words)))


def _is_as_wanted(host: GroupHost, folders: Mapping[str, Path], limits: GroupLimits) -> bool:
    wanted = _list_files(host, folders, limits)
    return all(_read(path) in {value, _whole_pages(value)} for path, value, must in wanted if must or path.exists())


def _list_files(host: GroupHost, folders: Mapping[str, Path], limits: GroupLimits) -> Iterator[tuple[Path, str, bool]]:
    """Files of the group with the values to write, and whether the kernel must have the file."""
    memory, shares = str(limits.memory_bytes), min(max(limits.cpu_shares, 2), _MAX_SHARES)
    if host.version > 1:
        yield folders["memory"] / "memory.max", memory, True
        yield folders["memory"] / "memory.swap.max", "0", False
        yield folders["cpu"] / "cpu.weight", str(_weight(shares)), True
    else:
        yield folders["memory"] / "memory.limit_in_bytes", memory, True
        if host.driver == "cgroupfs":  # systemd has no setting for it
            yield folders["memory"] / "memory.memsw.limit_in_bytes", memory, False
        yield folders["cpu"] / "cpu.shares", str(shares), True
    yield folders["pids"] / "pids.max", str(limits.pids), True
    if host.version == 1:  # systemd does not set it, and does not mind
        yield folders["memory"] / SOCKET_LIMIT, str(share_of_sockets(limits.memory_bytes)), False


def _weight(shares: int) -> int:
    """Shares of version 1 as a weight of version 2, as runtimes convert them."""
    return 1 + (shares - 2) * 9999 // 262_142


def _require_room(paths: CgroupPaths, limits: GroupLimits) -> None:
    """Raises: OSError if the guests hold more than the new limit: version 2 would kill them."""
    held = read_held_memory(paths)
    if held is not None and held > limits.memory_bytes:
        raise OSError(f"guests hold {format_bytes(held)}, more than the limit of {format_bytes(limits.memory_bytes)}")


def _apply_limits(host: GroupHost, name: str, folders: Mapping[str, Path], limits: GroupLimits) -> None:
    """Raises: OSError."""
    if host.driver == "systemd":
        _apply_to_slice(host, f"{name}.slice", limits)
        return
    if host.version > 1:
        with suppress(OSError):  # already so wherever containers have limits; the next line fails if it is not
            (host.root / "cgroup.subtree_control").write_text("+memory +pids +cpu", encoding="ascii")
    for folder in folders.values():
        folder.mkdir(mode=0o755, exist_ok=True)
    with suppress(OSError):  # kernels before 5.11: without it the limit would not hold below; later ones have no choice
        (folders["memory"] / "memory.use_hierarchy").write_text("1", encoding="ascii")
    files = [(path, value) for path, value, must in _list_files(host, folders, limits) if must or path.exists()]
    first, second, *rest = files
    if host.version == 1 and (read_memory_limit(folders["memory"], 1) or UNLIMITED) < limits.memory_bytes:
        first, second = second, first  # memory may not exceed memory and swap, which are raised first
    for path, value in (first, second, *rest):
        path.write_text(value, encoding="ascii")


def _apply_to_slice(host: GroupHost, unit: str, limits: GroupLimits) -> None:
    """Until the next reboot; a controller sets it again. Raises: OSError.

    What is set on an inactive slice is in force when it starts (systemctl(1)), so it is never without a limit. systemd
    answers before it has written the files of a slice that is active, so the limit may appear a moment later.
    """
    memory = (
        (f"MemoryMax={limits.memory_bytes}", "MemorySwapMax=0", f"CPUWeight={_weight(limits.cpu_shares)}")
        if host.version > 1
        else (f"MemoryLimit={limits.memory_bytes}", f"CPUShares={limits.cpu_shares}")
    )
    host.systemctl(("set-property", "--runtime", unit, *memory, f"TasksMax={limits.pids}"))
    host.systemctl(("start", unit))
    folder, ends_at = host.find_directory(unit.removesuffix(".slice"), "memory"), time.monotonic() + _SETTLING_S
    while read_memory_limit(folder, host.version) is None and time.monotonic() < ends_at:
        time.sleep(_SETTLING_S / 100)
    if host.version == 1 and (folder / SOCKET_LIMIT).exists():
        (folder / SOCKET_LIMIT).write_text(str(share_of_sockets(limits.memory_bytes)), encoding="ascii")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _whole_pages(value: str) -> str:
    """The kernel rounds bytes down to pages."""
    return str(int(value) // mmap.PAGESIZE * mmap.PAGESIZE)


def _describe(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
