"""Take a scratch directory away whatever lies in it: mounts, files of other uids, modes of 000."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from sandbox.files.checkout import remove_tree
from sandbox.files.overlay import unmount


def take_away(root: Path) -> None:
    """Unmount what is mounted below `root`, the last one first, then delete it."""
    table = Path("/proc/self/mountinfo").read_bytes().splitlines()
    for point in reversed([*_points(table)]):
        if point.is_relative_to(root):
            unmount(point)
    remove_tree(root)


def _points(table: Iterable[bytes]) -> Iterable[Path]:
    """Mount points, in order; octal escapes as proc(5) has them."""
    for line in table:
        yield Path(os.fsdecode(line.split()[4].decode("unicode_escape").encode("latin-1")))
