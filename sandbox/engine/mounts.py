"""Confirm in the guest's own mount table that the mounts are where they were asked for.

A path planted by an earlier guest can make the runtime mount a mask somewhere else (THREATS A07). Format: proc(5),
/proc/pid/mountinfo.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sandbox.errors import ErrorCode, SandboxError

_MOUNT_POINT = 4  # index of the field


def missing_mounts(mountinfo: str, targets: Iterable[str]) -> list[str]:
    """Targets at which nothing is mounted; pure."""
    points = {fields[_MOUNT_POINT] for fields in map(str.split, mountinfo.splitlines()) if len(fields) > _MOUNT_POINT}
    return sorted(set(targets) - points)


def require_mounts(pid: int, options: Mapping[str, Any], proc: Path = Path("/proc")) -> None:
    """Raises: `policy_violation` when a mount is not where it should be. A guest that has ended shows no table."""
    try:
        table = (proc / str(pid) / "mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    targets = [mount["Target"] for mount in options["HostConfig"]["Mounts"]]
    absent = missing_mounts(table, targets) if table else []
    if absent:
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"The guest's mount table lacks {', '.join(absent)}; it was stopped",
            hint="The worktree may hold a link where a mount belongs. Close this task and create a new one.",
        )
