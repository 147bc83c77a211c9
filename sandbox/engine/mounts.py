"""Verify in the guest's own mount table that the requested mounts exist at the requested places.

A path planted by an earlier guest can make the runtime mount a mask somewhere else (THREATS A07). An engine with its
own mount table sees only the empty directory below a worktree that we mounted. Format: proc(5), /proc/pid/mountinfo.

gVisor's kernel runs in an empty root without mounts of the host. A second process of the container, the gofer, has
these mounts and opens every file, so its table is the one to read. The guest's processes show the kernel's table.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from sandbox.engine.cgroups import CGROUP_ROOT, find_cgroups, list_processes
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_pattern import lazy_pattern

INVISIBLE_FILES_HINT = (
    "The engine runs in another machine or mount namespace (a virtual machine, a forwarded socket, PrivateTmp), or may "
    "not read the home (a snap sees no hidden directories, a network file system may deny root). Use an engine of this "
    "host, or a home (--home, SANDBOX_HOME) on a disk of both with the same path; `sandbox doctor` tries it. "
    "If it sees files but no mounts, set workspaces.worktree = 'plain'."
)
_UNSEEN_SOURCE = lazy_pattern(
    r'^invalid mount config for type "bind": (bind source path does not exist|stat /)|^statfs /', re.MULTILINE
)
_GVISOR_ROOT = lazy_pattern(r"^\S+ \S+ \S+ / / .* - tmpfs runsc-root ", re.MULTILINE)  # seen: release-20221219
ENDING_S, _PAUSE_S = 2.0, 0.02
_DEVICE, _MOUNT_POINT = 2, 4  # indices of the fields
_ESCAPE = lazy_pattern(r"\\([0-7]{3})")


def names_unseen_source(answer: str) -> bool:
    """Whether an engine refused a container because it does not find the source of a mount, or may not look at it: then
    it answers with the error of stat(2) or statfs(2). Decided by the message: engines have no code for it. Pure.
    """
    return _UNSEEN_SOURCE.search(answer) is not None


def invisible_files_error(details: str) -> SandboxError:
    """The engine does not find the source of a mount."""
    return SandboxError(
        ErrorCode.ENGINE_UNAVAILABLE,
        "The engine does not see the files of this host",
        details=details,
        hint=INVISIBLE_FILES_HINT,
    )


@lru_cache(maxsize=4)  # a check looks twice at the guest's
def parse_mount_devices(mountinfo: str) -> Mapping[str, str]:
    """Map each mount point to its device ('major:minor'); pure. Of several mounts at one point the last counts."""
    lines = (line.split(" ", _MOUNT_POINT + 1) for line in mountinfo.split("\n"))  # a space in a path is escaped
    rows = (fields for fields in lines if len(fields) > _MOUNT_POINT)
    return {unescape(f[_MOUNT_POINT]): f[_DEVICE] for f in rows}


def unescape(field: str) -> str:
    """Decode the escapes of a path in the table."""
    return _ESCAPE.sub(lambda m: chr(int(m[1], 8)), field) if "\\" in field else field


def find_missing_mounts(mountinfo: str, targets: Iterable[str]) -> list[str]:
    """List the targets without a mount; pure."""
    return sorted(set(targets) - parse_mount_devices(mountinfo).keys())


def find_mismatched_mounts(guest: str, host: str, mounts: Iterable[Mapping[str, Any]]) -> list[str]:
    """List the targets that show another file system than the host has at their source; pure."""
    inside, outside = parse_mount_devices(guest), parse_mount_devices(host)
    return sorted(
        m["Target"] for m in mounts if m["Source"] in outside and inside.get(m["Target"]) != outside[m["Source"]]
    )


def require_mounts(
    pid: int, options: Mapping[str, Any], proc: Path = Path("/proc"), groups: Path = CGROUP_ROOT
) -> None:
    """Raises: `policy_violation` for a mount that is missing or has a different source. A guest that has ended has no
    table and is not checked.
    """
    guest = _read_guest_table(pid, proc, groups)
    if not guest:
        return
    mounts = options["HostConfig"]["Mounts"]
    if absent := find_missing_mounts(guest, [mount["Target"] for mount in mounts]):
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"The guest's mount table lacks {', '.join(absent)}; it was stopped",
            hint="The worktree may contain a link at the place of a mount. Close this task and create a new one.",
        )
    unsure = list(_find_other_devices(mounts, parse_mount_devices(guest)))
    if unsure and (other := find_mismatched_mounts(guest, _read_table(proc / "self"), unsure)):
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"The engine does not see what the controller mounted for {', '.join(other)}; the guest was stopped",
            hint="They have different mount tables: set workspaces.worktree = 'plain' and create a new task.",
        )


def _find_other_devices(mounts: Iterable[Mapping[str, Any]], inside: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    """The mounts whose source is on another device than the guest shows, with real paths: only the host's table tells
    whether that is a fault. On btrfs it is none: a subvolume has a device of its own there, which no table shows. The
    kernel writes that table anew for each reader, with 200 tasks for 2 ms.
    """
    for mount in mounts:
        try:
            fd = os.open(mount["Source"], os.O_PATH | os.O_CLOEXEC)
        except OSError:
            yield {**mount, "Source": os.path.realpath(mount["Source"])}
            continue
        try:
            device = os.fstat(fd).st_dev
            if inside[mount["Target"]] != f"{os.major(device)}:{os.minor(device)}":
                yield {**mount, "Source": os.readlink(f"/proc/self/fd/{fd}")}  # noqa: PTH115 - text in, text out
        finally:
            os.close(fd)


def _read_guest_table(pid: int, proc: Path, groups: Path) -> str:
    """The table with the guest's mounts; empty for one that has ended. Of gVisor's two processes the gofer ends first,
    so a kernel without one is given a moment to end, too.
    """
    ends_at = time.monotonic() + ENDING_S
    while _GVISOR_ROOT.search(guest := _read_table(proc / str(pid))):
        if found := _read_gofer_table(pid, proc, groups):
            return found
        if time.monotonic() > ends_at:
            break
        time.sleep(_PAUSE_S)
    return guest


def _read_gofer_table(pid: int, proc: Path, groups: Path) -> str:
    """Return the longest mount table in the container, except the gVisor kernel's; empty when there is none."""
    paths = find_cgroups(pid, groups, proc)
    tables = (_read_table(proc / str(member)) for member in list_processes(paths)) if paths else ()
    return max((table for table in tables if not _GVISOR_ROOT.search(table)), key=len, default="")


def _read_table(process: Path) -> str:
    try:
        return os.fsdecode((process / "mountinfo").read_bytes())
    except OSError:
        return ""
