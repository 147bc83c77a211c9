"""Tables of open files of the threads of a process: clone(2) can give a thread one of its own."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Sequence
from pathlib import Path

MAX_FILES = 50_000
"""Files examined in one search: bounds our work; more is a sign of files that no table shows."""

_COMPARED = 64  # tables: a guest may have one for each thread, and all pairs of them take seconds
_SYS_KCMP, _KCMP_FILES = {"x86_64": 312, "aarch64": 272}, 2
_libc = ctypes.CDLL(None, use_errno=True)


def choose_one_of_each_table(threads: Sequence[Path]) -> list[Path]:
    """One thread for each table of open files; each thread, if the kernel does not compare them. Of a process with very
    many tables some come twice.
    """
    chosen: list[Path] = []
    for thread in threads:
        if all(_compare_files(thread.name, other.name) != 0 for other in chosen[:_COMPARED]):
            chosen.append(thread)
    return chosen


def _compare_files(thread: str, other: str) -> int:
    """kcmp(2): 0 if both threads have the same table of open files; negative if that is unknown."""
    number = _SYS_KCMP.get(platform.machine())
    return -1 if number is None else int(_libc.syscall(number, int(thread), int(other), _KCMP_FILES, 0, 0))
