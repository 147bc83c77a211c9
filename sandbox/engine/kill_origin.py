"""Whose limit was it when the kernel killed a process of a guest for lack of memory: the guest's own, or that of all
guests together (guest_group.py), or has the host itself none left?

The counters of kills do not say: they count where the killed process was. Version 2 counts in `memory.events`, as
`oom`, how often a group's own limit left no way but to kill. Version 1 has no such number. It counts failed charges
(`failcnt`), also those after which the page cache gave way, and it tells a file descriptor when a group's limit or one
above it kills, not one below (Documentation/admin-guide/cgroup-v1/memory.rst, section 10). If in doubt, it was the
host: a verdict must not blame a check for its neighbours.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from sandbox.engine.cgroups import CgroupPaths

_FAILED_CHARGES = ("memory.failcnt", "memory.memsw.failcnt")
"""With limits of the same size the second counter is the one that is reached."""
_OWN_KILLS = re.compile(r"^oom (\d+)$", re.MULTILINE)


class KillOrigin:
    """Watches one guest between enter and exit; needs permission to read its control groups only on version 2."""

    def __init__(self, paths: CgroupPaths | None) -> None:
        self._version = paths.version if paths else 0
        self._folder = paths.memory if paths else None
        self._event = -1
        self._own_before: int | None = None
        self._group_before: int | None = None

    def __enter__(self) -> Self:
        if self._folder is not None:
            self._own_before, self._group_before = self._read_own(), self._read_group()
            if self._version == 1:
                with suppress(OSError):
                    self._event = _listen_for_kills(self._folder.parent)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._event >= 0:
            os.close(self._event)
            self._event = -1

    def is_host_short(self) -> bool:
        """Whether kills since enter may be due to more than the guest's own limit. Only meaningful if there were any.
        False if the counters cannot be read. Call it before exit.
        """
        if self._event >= 0 and _has_happened(self._event):
            return True
        if _has_grown(self._group_before, self._read_group()):
            return True
        own = self._read_own()
        return None not in (own, self._own_before) and not _has_grown(self._own_before, own)

    def _read_own(self) -> int | None:
        if self._folder is None:
            return None
        if self._version > 1:
            return _read_kills(self._folder / "memory.events")
        found = [number for name in _FAILED_CHARGES if (number := _read_number(self._folder / name)) is not None]
        return sum(found) if found else None

    def _read_group(self) -> int | None:
        """Kills because of the limit of the group above; version 2 only."""
        if self._folder is None or self._version == 1:
            return None
        return _read_kills(self._folder.parent / "memory.events.local")


def _listen_for_kills(group: Path) -> int:
    """Return a descriptor that shows kills because of the limit of a group or one above it. Raises: OSError."""
    event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    try:
        control = os.open(group / "memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
        try:
            (group / "cgroup.event_control").write_text(f"{event} {control}", encoding="ascii")
        finally:
            os.close(control)
    except BaseException:
        os.close(event)
        raise
    return event


def _has_happened(event: int) -> bool:
    try:
        return os.eventfd_read(event) > 0
    except BlockingIOError:
        return False


def _has_grown(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after > before


def _read_number(path: Path) -> int | None:
    text = _read_text(path).strip()
    return int(text) if text.isdigit() else None


def _read_kills(path: Path) -> int | None:
    found = _OWN_KILLS.search(_read_text(path))
    return int(found[1]) if found else None


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""
