"""Worktrees that tests left mounted: a home in a temporary directory is given up as a whole."""

from __future__ import annotations

import os
from pathlib import Path

from sandbox.engine.mounts import parse_mount_devices
from sandbox.files.overlay_mounts import unmount_overlay


def unmount_below(folder: Path) -> None:
    """Take away every mount below a directory, the last one first."""
    table = os.fsdecode(Path("/proc/self/mountinfo").read_bytes())
    for point in reversed([Path(point) for point in parse_mount_devices(table)]):
        if point.is_relative_to(folder):
            unmount_overlay(point)
