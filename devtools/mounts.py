"""Worktrees that tests left mounted: a home in a temporary directory is given up as a whole."""

from __future__ import annotations

from pathlib import Path

from sandbox.files.mount_points import list_mounts_below
from sandbox.files.overlay_mounts import unmount_overlay


def unmount_below(folder: Path) -> None:
    """Take away every mount below a directory, the last one first."""
    for point in list_mounts_below(folder):
        unmount_overlay(point)
