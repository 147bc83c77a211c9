"""The user and group ids that this host has given out: accounts, groups, and ranges of subordinate ids.

Files are read, not the name service: it may answer from a network, and slowly. Ids of a directory service should be
kept out of the range by configuration.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_ACCOUNTS = ("passwd", "group")
_SUBORDINATE = ("subuid", "subgid")


def read_reserved_ids(etc: Path = Path("/etc"), *, subordinate: bool = True) -> tuple[range, ...]:
    """Ids of the accounts and groups of this host, and of its subordinate ranges. A missing file holds none."""
    return (
        *(found for name in _ACCOUNTS for found in parse_accounts(_lines(etc / name))),
        *(
            found
            for name in (_SUBORDINATE if subordinate else ())
            for found in parse_subordinate_ids(_lines(etc / name))
        ),
    )


def parse_accounts(lines: Iterable[str]) -> Iterator[range]:
    """Ids of lines `name:password:id:...`, the format of passwd(5) and group(5); other lines are skipped. Pure."""
    for line in lines:
        fields = line.split(":")
        with suppress(ValueError, IndexError):
            yield range(int(fields[2]), int(fields[2]) + 1)


def parse_subordinate_ids(lines: Iterable[str]) -> Iterator[range]:
    """Ranges of lines `name:first:count`, the format of subuid(5); other lines are skipped. Pure."""
    for line in lines:
        fields = line.split(":")
        with suppress(ValueError, IndexError):
            yield range(int(fields[1]), int(fields[1]) + int(fields[2]))


def read_owners_of_processes(proc: Path = Path("/proc")) -> frozenset[int]:
    """The effective uids of every process that can be dumped: 4 us each. Others are shown as root's."""
    found: set[int] = set()
    with os.scandir(proc) as entries:
        for entry in entries:
            if entry.name.isdigit():
                with suppress(OSError):
                    found.add(entry.stat().st_uid)
    return frozenset(found)


def read_ids_of_processes(proc: Path = Path("/proc")) -> frozenset[int]:
    """The real, effective, saved and file system uids and gids of every process: 70 us each."""
    found: set[int] = set()
    for name in os.listdir(proc):  # noqa: PTH208 - a Path for each process is slow
        if name.isdigit():
            with suppress(OSError, ValueError):
                found.update(_parse_status((proc / name / "status").read_text(encoding="utf-8", errors="replace")))
    return frozenset(found)


def _parse_status(text: str) -> Iterator[int]:
    for line in text.splitlines():
        if line.startswith(("Uid:", "Gid:")):
            yield from map(int, line.split()[1:])


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
