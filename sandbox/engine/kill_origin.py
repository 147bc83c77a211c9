"""Which limit was reached when the kernel killed a process of a guest for lack of memory: the guest's own, or that of
all guests together (guest_group.py)? Or has the host itself no memory left?

The counters of kills do not say: they count where the killed process was. Version 2 counts in `memory.events`, as
`oom`, how often a group's own limit left no way but to kill. Version 1 has no such number, but tells a file descriptor
when the limit of a group or of one above it kills (Documentation/admin-guide/cgroup-v1/memory.rst, section 10). (Its
`failcnt` also counts charges after which the page cache gave way; on Linux 6.18 it stays 0.) If both limits were
reached, or neither, it was the host's: a verdict must not blame a check for its neighbours.
"""

from __future__ import annotations

import os
import re
import select
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from sandbox.engine.cgroups import CgroupPaths
from sandbox.lazy_pattern import lazy_pattern

_KILLS = lazy_pattern(r"^oom (\d+)$", re.MULTILINE)


class KillOrigin:
    """Watches one guest between enter and exit."""

    def __init__(self, paths: CgroupPaths | None) -> None:
        own = paths.memory if paths else None
        self._own: _Listener | _Counter | None = None
        self._all: _Listener | _Counter | None = None
        if paths is not None and own is not None:
            self._own, self._all = _sources(own, paths.version)

    def __enter__(self) -> Self:
        for source in (self._own, self._all):
            if source is not None:
                source.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for source in (self._own, self._all):
            if source is not None:
                source.close()

    def is_host_short(self) -> bool:
        """Whether kills since enter may be due to more than the guest's own limit. Only meaningful if there were any.
        False if this host does not say. Call it before exit.
        """
        own = self._own.has_happened() if self._own else None
        shared = self._all.has_happened() if self._all else None
        return bool(shared) or own is False


class _Listener:
    """Version 1: kills because of the limit of a group or one above it; also notified when the group is removed."""

    def __init__(self, group: Path) -> None:
        self._group = group
        self._event = -1

    def open(self) -> None:
        with suppress(OSError):
            self._event = _listen_for_kills(self._group)

    def has_happened(self) -> bool | None:
        if self._event < 0:
            return None
        ready = select.poll()
        ready.register(self._event, select.POLLIN)
        return bool(ready.poll(0))

    def close(self) -> None:
        if self._event >= 0:
            os.close(self._event)
            self._event = -1


class _Counter:
    """Version 2: kills because of the limit of a group, as a file of it counts them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before: int | None = None

    def open(self) -> None:
        self._before = _read_kills(self._path)

    def has_happened(self) -> bool | None:
        after = _read_kills(self._path)
        return None if after is None or self._before is None else after > self._before

    def close(self) -> None:
        pass


def _sources(own: Path, version: int) -> tuple[_Listener | _Counter, _Listener | _Counter]:
    """Of the guest's own limit, and of that of the group above it."""
    if version == 1:
        return _Listener(own), _Listener(own.parent)
    return _Counter(own / "memory.events"), _Counter(own.parent / "memory.events.local")


def _listen_for_kills(group: Path) -> int:
    """Raises: OSError."""
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


def _read_kills(path: Path) -> int | None:
    try:
        found = _KILLS.search(path.read_text(encoding="ascii"))
    except OSError:
        return None
    return int(found[1]) if found else None
