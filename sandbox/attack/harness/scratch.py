"""The scratch directory of one run.

It has a lock file that is held while its process lives, so that the next run finds what a killed run left. It is
deleted with all its contents: mounts, files of other uids, modes of 000.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from sandbox.files.checkout import remove_tree
from sandbox.files.overlay_mounts import unmount_overlay
from sandbox.store.home import Home
from sandbox.store.lockfile import create_locked, try_lock

PREFIX = "sandbox-attack-"
_CLAIM = "claim"
_INSTANCE = re.compile(r"[0-9a-f]{16}")


class ScratchDirectory:
    """A new private directory below `$TMPDIR` or `below`. The kernel releases its lock when this process dies.

    Only below `$TMPDIR` does the next run find what a killed run left.
    """

    def __init__(self, below: Path | None = None) -> None:
        self.root = Path(tempfile.mkdtemp(prefix=PREFIX, dir=below)).resolve()
        self._claim, beside = create_locked(self.root / _CLAIM)
        beside.rename(self.root / _CLAIM)

    def record_instance(self, instance: str) -> None:
        """Record the instance label, so that the next run can remove its containers if this process is killed."""
        os.pwrite(self._claim, instance.encode(), 0)

    def delete(self) -> None:
        """Delete the directory."""
        try:
            unmount_and_delete(self.root)
        finally:
            os.close(self._claim)


def find_abandoned() -> Iterator[Path]:
    """Scratch directories of killed runs, each locked while the caller handles it."""
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{_CLAIM}")):
        with suppress(OSError):  # owned by another user, or gone
            if path.parent.lstat().st_uid == os.geteuid() and not path.parent.is_symlink():
                with try_lock(path) as is_dead:
                    if is_dead:
                        yield path.parent


def instances_of(root: Path) -> set[str]:
    """Instance labels of containers that the run with this directory may have left: its own and its scenes'."""
    labels = {Home(path.parent).instance_id for path in root.glob("*/home/instance") if _read_id(path)}
    return labels | ({own} if (own := _read_id(root / _CLAIM)) else set())


def _read_id(path: Path) -> str:
    """The id in a file; '' if it has none."""
    with suppress(OSError):
        text = path.read_text(encoding="ascii", errors="replace")
        return text if _INSTANCE.fullmatch(text) else ""
    return ""


def unmount_and_delete(root: Path) -> None:
    """Unmount everything below `root`, the last mount first, then delete it."""
    table = Path("/proc/self/mountinfo").read_bytes().splitlines()
    for point in reversed([*_mount_points(table)]):
        if point.is_relative_to(root):
            unmount_overlay(point)
    remove_tree(root)


def _mount_points(table: Iterable[bytes]) -> Iterable[Path]:
    """Mount points, in order; octal escapes are decoded as in proc(5)."""
    for line in table:
        yield Path(os.fsdecode(line.split()[4].decode("unicode_escape").encode("latin-1")))
