"""Mounts of tests: small file systems, and whether a test mounted anything."""

from __future__ import annotations

import os
import select
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


class MountEvents:
    """Tells whether anything was mounted or unmounted on this host. Source: proc_pid_mounts(5), "poll"."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._poll.register(os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC), select.POLLPRI)

    def since_last_look(self) -> bool:
        """Whether there was an event since the last call; before the first one, since this was made."""
        return bool(self._poll.poll(0))
