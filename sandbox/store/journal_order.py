"""Read a journal by the times at which its operations started, without holding it in memory.

Entries are written when operations end, so a long operation comes after short ones that started later. The file is read
twice. The first pass keeps the earliest time of each block of lines. The second parses a block at a time, and keeps
only entries for which an earlier one may still follow.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from sandbox.store.journal import parse_entry

BLOCK_BYTES = 64 * 1024

_START = re.compile(rb'\{"schema_version":1,(?:"seq":[0-9]{1,15},"prev":"sha256:[0-9a-f]{64}",)?"at":"([^"\\]{10,40})"')
_NEVER = datetime.max.replace(tzinfo=UTC)


class TimedLine(NamedTuple):
    """An entry's line without its line break. Ordered by time, then by journal and line number."""

    at: datetime
    journal: str
    number: int
    content: bytes


@dataclass
class _Block:
    """Whole lines of a file from `offset` on. `first`: number of the first. `earliest`: of those that are wanted."""

    offset: int
    first: int
    size: int = 0
    earliest: datetime = _NEVER


def read_by_time(path: Path, since: datetime) -> Iterator[TimedLine]:
    """Lines of entries that started at `since` or later, by time. Lines that are no entries are left out.

    What is appended meanwhile is not read. A missing file has no lines.
    """
    blocks = [block for block in _index_blocks(path, since) if block.earliest < _NEVER]
    follow = [*accumulate((block.earliest for block in reversed(blocks)), min, initial=_NEVER)][-2::-1]
    waiting: list[TimedLine] = []
    for block, earliest_later in zip(blocks, follow, strict=True):
        for line in _read_block(path, block):
            if line.at >= since:
                heapq.heappush(waiting, line)
        while waiting and waiting[0].at <= earliest_later:
            yield heapq.heappop(waiting)


def with_zone(at: datetime) -> datetime:
    """A time without a zone is one in UTC."""
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _index_blocks(path: Path, since: datetime) -> Iterator[_Block]:
    block = _Block(0, 1)
    try:
        with path.open("rb") as stream:
            for number, raw in enumerate(stream, start=1):
                if block.size >= BLOCK_BYTES:
                    yield block
                    block = _Block(block.offset + block.size, number)
                block.size += len(raw)
                at = _find_start(raw)
                if at is not None and since <= at < block.earliest:
                    block.earliest = at
    except FileNotFoundError:
        return
    yield block


def _read_block(path: Path, block: _Block) -> Iterator[TimedLine]:
    with path.open("rb", buffering=0) as stream:
        stream.seek(block.offset)
        lines = stream.read(block.size).split(b"\n")
    for number, line in enumerate(lines, start=block.first):
        at = _find_start(line)
        if at is not None:
            yield TimedLine(at, path.stem, number, line)


def _find_start(line: bytes) -> datetime | None:
    """The time in a line that we wrote, without parsing the rest; that of another entry; None for other lines."""
    found = _START.match(line)
    try:
        return with_zone(datetime.fromisoformat(found[1].decode())) if found else _parse_start(line)
    except ValueError:
        return _parse_start(line)


def _parse_start(line: bytes) -> datetime | None:
    entry = parse_entry(line)
    return with_zone(entry.at) if entry is not None else None
