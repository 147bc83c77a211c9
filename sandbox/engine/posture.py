"""The confinement of a started guest, as the kernel reports it to PID 1 before any foreign code runs. Pure.

The engine's answer to `inspect` says what it intends to do. proc(5) says what it did: the status of PID 1, which every
check inherits, its mount table, and its network interfaces.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from sandbox.engine.create_options import FIRST_PORT_SYSCTL
from sandbox.engine.mounts import find_missing_mounts, unescape
from sandbox.engine.pid1_messages import Posture
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass

OWN_KERNEL_RUNTIMES = frozenset({"runsc"})
"""Runtimes with their own kernel for the guest: it shows no seccomp filter, and not all the fields."""

_NOT_SHOWN = ("CapAmb", "NoNewPrivs", "Seccomp")  # seen: release-20221219
_CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
_KERNEL_PATHS = ("/proc/", "/sys/", "/dev/")
_KERNEL_KINDS = frozenset({"proc", "sysfs", "tmpfs", "devtmpfs", "devpts", "mqueue", "cgroup", "cgroup2", "selinuxfs"})
"""File systems that have no files of the host's disks: one of a disk at `/dev/shm` is a directory of the host."""

_READ_ONLY_KINDS = frozenset({"sysfs", "selinuxfs"})
"""Settings of the kernel. Limits are not among them: in a user namespace the runtime mounts them writable (seen: runc
1.1.5), and their files belong to the host's root, which is no user of the namespace.
"""

_LIMIT_KINDS = frozenset({"cgroup", "cgroup2"})
"""A guest of a rootless engine is its user, who owns the files of these limits: there they must be read-only, too."""

_ROOTLESS_USER = "0:0"

_SHARED_MEMORY = "/dev/shm"  # noqa: S108  # the guest's
_ENGINE_FILES = frozenset({"/", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"})
_TMPFS_OPTIONS = {"nosuid", "nodev"}
_DELETED = "//deleted"
_INTERFACE_HEADINGS = 2


@dataclass(frozen=True)
class _Mount:
    """A line of mountinfo: what is mounted at one place."""

    root: str
    options: frozenset[str]
    tags: tuple[str, ...]
    kind: str


def find_posture_faults(
    posture: Posture,
    options: Mapping[str, Any],
    own_files: Collection[str] = (),
    idle_tunnels: Collection[str] = (),
) -> list[str]:
    """List the differences from `options`, in words; empty when there is none. `own_files`: mounts of the engine.
    `idle_tunnels`: interfaces that are proven to be out of use (fallback_tunnels.py).
    """
    own_kernel = options["HostConfig"]["Runtime"] in OWN_KERNEL_RUNTIMES
    engine_files = None if own_kernel else _ENGINE_FILES.union(own_files)
    return [
        *_status_faults(posture.status, options["User"], own_kernel),
        *_interface_faults(list_interfaces(posture), idle_tunnels),
        *_mount_faults(posture.mountinfo, options, engine_files),
        *([] if own_kernel else _port_faults(posture.port_start, options["HostConfig"]["Sysctls"])),
    ]


def require_posture(
    posture: Posture,
    options: Mapping[str, Any],
    own_files: Collection[str] = (),
    idle_tunnels: Collection[str] = (),
) -> None:
    """Raises: `policy_violation`, with every difference from `options`."""
    if faults := find_posture_faults(posture, options, own_files, idle_tunnels):
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"The guest differs from its request and was stopped: {'; '.join(faults)}",
            hint="The engine or its host lacks a feature (`sandbox doctor` names it) or gives guests a network, or the "
            "worktree contains a link at the place of a mount.",
        )


def list_interfaces(posture: Posture) -> frozenset[str]:
    """The network interfaces that the guest has. proc(5), /proc/net/dev."""
    lines = posture.interfaces.split("\n")[_INTERFACE_HEADINGS:]
    return frozenset(line.partition(":")[0].strip() for line in lines if line.strip())


def _status_faults(text: str, user: str, own_kernel: bool) -> Iterator[str]:
    fields = {name: value.split() for name, _, value in (line.partition(":") for line in text.split("\n"))}
    uid, _, gid = user.partition(":")
    wanted: dict[str, tuple[str, ...]] = {name: ("0" * 16,) for name in _CAPABILITIES}
    wanted |= {"NoNewPrivs": ("1",), "Seccomp": ("2",), "Uid": (uid,) * 4, "Gid": (gid,) * 4}
    for name in _NOT_SHOWN if own_kernel else ():
        del wanted[name]
    for name, value in wanted.items():
        if tuple(fields.get(name, ())) != value:
            yield f"{name} is {' '.join(fields.get(name, ['unknown']))}"
    if more := set(fields.get("Groups", ())) - {gid}:
        yield f"it is in the groups {', '.join(sorted(more))}"


def _interface_faults(names: frozenset[str], idle: Collection[str]) -> Iterator[str]:
    if names.difference(idle) != {"lo"}:  # PID 1 omits a text that is too long: no names at all
        yield f"it has the network interfaces {', '.join(sorted(names.difference(idle, {'lo'}))) or 'unknown'}"


def _port_faults(text: str, sysctls: Mapping[str, str]) -> Iterator[str]:
    if text.strip() != sysctls[FIRST_PORT_SYSCTL]:
        yield f"it may listen on ports from {text.strip() or 'unknown'} on"


def _mount_faults(text: str, options: Mapping[str, Any], engine_files: frozenset[str] | None) -> Iterator[str]:
    """`engine_files`: mounts of the engine; None for a kernel that does not show all of its mounts."""
    host, table = options["HostConfig"], _parse_mount_table(text)
    for target in find_missing_mounts(text, [*(mount["Target"] for mount in host["Mounts"]), *host["Tmpfs"], "/"]):
        yield f"no mount at {target}"
    for target in ("/", *(mount["Target"] for mount in host["Mounts"] if mount["ReadOnly"])):
        if target in table and "ro" not in table[target].options:
            yield f"{target} is writable"
    if engine_files is not None:
        yield from _foreign_faults(table, host, engine_files)
        yield from _limit_faults(table, options["User"])


def _foreign_faults(
    table: Mapping[str, _Mount], host: Mapping[str, Any], engine_files: frozenset[str]
) -> Iterator[str]:
    known = engine_files | {mount["Target"] for mount in host["Mounts"]} | host["Tmpfs"].keys()
    for target, mount in table.items():
        is_kernel = target not in known and f"{target}/".startswith(_KERNEL_PATHS)
        if target not in known and not is_kernel:
            yield f"something is mounted at {target}"
        if is_kernel:
            yield from _kernel_faults(target, mount)
        if any(tag.startswith("shared:") for tag in mount.tags):
            yield f"mounts at {target} propagate to other namespaces"
        if mount.root.endswith(_DELETED):
            yield f"{target} shows a deleted directory or file"
        if target in host["Tmpfs"] and (mount.kind != "tmpfs" or not mount.options >= _TMPFS_OPTIONS):
            yield f"{target} is not a tmpfs with nosuid and nodev"


def _limit_faults(table: Mapping[str, _Mount], user: str) -> Iterator[str]:
    """Limits that the guest could change itself."""
    for target, mount in table.items():
        if user == _ROOTLESS_USER and mount.kind in _LIMIT_KINDS and "ro" not in mount.options:
            yield f"{target} is writable"


def _kernel_faults(target: str, mount: _Mount) -> Iterator[str]:
    """Of a mount that is not ours at or below a place of the kernel."""
    if mount.kind not in _KERNEL_KINDS:
        yield f"{target} shows files of the host ({mount.kind})"
    elif mount.kind in _READ_ONLY_KINDS and "ro" not in mount.options:
        yield f"{target} is writable"
    if target == _SHARED_MEMORY and (mount.kind, mount.root) != ("tmpfs", "/"):
        yield f"{target} is not the guest's own"


def _parse_mount_table(text: str) -> dict[str, _Mount]:
    """Map each mount point to its mount; of several at one point the last counts. proc(5), /proc/pid/mountinfo."""
    rows = (line.split(" ") for line in text.split("\n"))
    return {unescape(row[4]): _parse_mount(row) for row in rows if "-" in row[6:]}


def _parse_mount(row: list[str]) -> _Mount:
    end = row.index("-", 6)
    return _Mount(unescape(row[3]), frozenset(row[5].split(",")), tuple(row[6:end]), (row[end + 1 :] or [""])[0])
