"""Small file systems for tests."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devtools.requirement import unavailable
from sandbox.files.mount_points import unmount_below


@contextmanager
def small_file_system(place: Path, size_bytes: int, inodes: int = 0) -> Iterator[Path]:
    """A file system of this size in memory, mounted at a new directory. `inodes`: 0 for the kernel's default."""
    place.mkdir()
    options = f"size={size_bytes},nr_inodes={inodes}" if inodes else f"size={size_bytes}"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    done = subprocess.run(command, check=False, capture_output=True)  # noqa: S603 - ours
    if done.returncode != 0:
        unavailable(f"no small file system can be mounted: {done.stderr.decode(errors='replace')}")
    try:
        yield place
    finally:
        unmount_below(place.parent)
