"""The hash chain of a journal: each entry has a digest of what is before it, so that a change of it is detected.

Theory. A line of the chain begins with its number `seq` and with `prev`: the sha256 of all bytes from the beginning of
the previous line of the chain up to this line; for the first line, of all bytes of the file before it. So all bytes in
between are covered: also the rest of an interrupted write, and lines of old versions without a chain. Appending needs
only one read of the file's end. Bytes after the last line of the chain are not covered yet, so the heads of journals
are also recorded elsewhere (`sandbox.workbench.controller.audit`; docs/audit.md).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from sandbox import models
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern

if TYPE_CHECKING:
    from sandbox.models import BrokenEntry

_PLACE = lazy_pattern(rb'\{"schema_version":1,"seq":([1-9][0-9]{0,14}),"prev":"(sha256:[0-9a-f]{64})",')
_WINDOW = 8192


@dataclass(frozen=True)
class ChainHead:
    """The last entry of a chain: its number, and the sha256 of its line without the line break."""

    seq: int
    sha256: str


@dataclass(frozen=True)
class ChainTail:
    """The end of a file: the number of the last entry of its chain (0: none) and all bytes from that entry on."""

    seq: int
    content: bytes

    @property
    def is_torn(self) -> bool:
        """Whether the last write was interrupted."""
        return bool(self.content) and not self.content.endswith(b"\n")


def sha256(content: bytes) -> str:
    """The digest as written in entries."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class ChainPlace(NamedTuple):
    """`seq` and `prev` of one line of the chain."""

    seq: int
    prev: str


def parse_place(line: bytes) -> ChainPlace | None:
    """`seq` and `prev` of a line of the chain; None for any other line, also for a partial one."""
    found = _PLACE.match(line)
    if found is None:
        return None
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return None
    return ChainPlace(int(found[1]), found[2].decode())


def find_tail(fd: int, size: int) -> ChainTail:
    """Read the end of a file, as much as needed. Raises: OSError."""
    window = _WINDOW
    while True:
        start = max(0, size - window)
        content = os.pread(fd, size - start, start)
        found = _find_last_in_chain(content, whole=start == 0)
        if found is not None:
            return found
        if start == 0:
            return ChainTail(0, content)
        window *= 8


def _find_last_in_chain(content: bytes, *, whole: bool) -> ChainTail | None:
    end = len(content)
    while end > 0:
        start = content.rfind(b"\n", 0, end - 1 if content[end - 1 : end] == b"\n" else end) + 1
        if start == 0 and not whole:
            return None  # may be a partial line
        place = parse_place(content[start:end].rstrip(b"\n"))
        if place is not None:
            return ChainTail(place.seq, content[start:])
        end = start
    return None


@dataclass(frozen=True)
class ChainLink:
    """One line of a journal in `walk_chain`. `seq`: None for a line outside the chain."""

    line: int
    content: bytes
    seq: int | None
    broken: BrokenEntry | None = None

    @property
    def sha256(self) -> str:
        """Digest of the line without its line break."""
        return sha256(self.content)


def walk_chain(lines: Iterable[bytes]) -> Iterator[ChainLink]:
    """Follow the chain through a file's lines, given with line breaks. A deviation is in the link where it is detected.

    After a deviation the walk continues from the actual line, so that one edit gives one deviation.
    """
    between, last = hashlib.sha256(), 0
    for number, raw in enumerate(lines, start=1):
        line = raw.rstrip(b"\n")
        place = parse_place(line)
        if place is None:
            broken = _find_insertion(line, number) if last else None
        else:
            broken = _find_break(place, ChainPlace(last + 1, f"sha256:{between.hexdigest()}"), number)
            between, last = hashlib.sha256(), place.seq
        between.update(raw if raw.endswith(b"\n") else raw + b"\n")
        yield ChainLink(number, line, place.seq if place else None, broken)


def _find_insertion(line: bytes, number: int) -> BrokenEntry | None:
    """An entry without a place in the chain was not written by us. The rest of an interrupted write is no entry."""
    try:
        is_entry = isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        is_entry = False
    details = f"line {number} is an entry without a place in the chain"
    return (
        models.BrokenEntry(damage=models.JournalDamage.INSERTED, line=number, seq=None, details=details)
        if is_entry
        else None
    )


def _find_break(found: ChainPlace, expected: ChainPlace, number: int) -> BrokenEntry | None:
    (seq, prev), (wanted, digest) = found, expected
    if seq > wanted:
        missing = f"entry {wanted}" if seq == wanted + 1 else f"entries {wanted} to {seq - 1}"
        details = f"line {number} is entry {seq}, and {missing} should be before it"
        return models.BrokenEntry(damage=models.JournalDamage.REMOVED, line=number, seq=wanted, details=details)
    if seq < wanted:
        details = f"line {number} is entry {seq} again, where entry {wanted} should be"
        return models.BrokenEntry(damage=models.JournalDamage.REORDERED, line=number, seq=seq, details=details)
    if prev != digest:
        before = f"entry {seq - 1}" if seq > 1 else "the text before the chain"
        details = f"entry {seq} in line {number} does not match the bytes before it: {before} was changed"
        return models.BrokenEntry(
            damage=models.JournalDamage.EDITED, line=number - 1, seq=seq - 1 or None, details=details
        )
    return None
