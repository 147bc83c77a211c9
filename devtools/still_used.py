"""What this host still runs or attaches of a directory: the processes and loop devices that a test run left."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PAUSE_S = 0.1


def wait_until_unused(folder: Path, deadline_s: float) -> list[str]:
    """One line for each process and loop device that still uses a directory when the deadline has passed.

    A killed process and a detached device take a moment to go, longer on a busy host; without any this returns at once.
    """
    end = time.monotonic() + deadline_s
    while (found := [*_processes(folder), *_loop_devices(folder)]) and time.monotonic() < end:
        time.sleep(_PAUSE_S)
    return found


def _processes(folder: Path) -> Iterator[str]:
    """Processes that name a path below the directory in their arguments, or work there. Not we, and not our parents."""
    ours = set(_line_of_parents(os.getpid()))
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            words = os.fsdecode((place / "cmdline").read_bytes()).split("\0")
            named = any(f"{folder}/" in word for word in words)
            if int(place.name) not in ours and (named or (place / "cwd").readlink().is_relative_to(folder)):
                yield f"process {place.name} {' '.join(words)[:200]}"


def _line_of_parents(pid: int) -> Iterator[int]:
    while pid > 1:
        yield pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _loop_devices(folder: Path) -> Iterator[str]:
    for place in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):  # it was detached
            image = place.read_text().strip()
            if image.startswith(f"{folder}/"):
                yield f"loop device {place.parts[3]} of {image}"
