"""Worktrees that tests left mounted: a home in a temporary directory is given up as a whole."""

from __future__ import annotations

from pathlib import Path

from sandbox.files.overlay import unmount


def unmount_below(folder: Path) -> None:
    """Take away every mount below a directory, the last one first."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    for point in reversed([Path(line.split()[4]) for line in lines]):
        if point.is_relative_to(folder):
            unmount(point)
