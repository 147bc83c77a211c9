"""Write a long journal as `append_entry` would, but in one go."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sandbox.files.tree import sha256_of
from sandbox.models import Actor, JournalEntry

START = datetime(2026, 1, 1, tzinfo=UTC)


def make_entry(number: int, *, at: datetime | None = None) -> JournalEntry:
    """An entry with this number as its operation."""
    return JournalEntry(
        at=at or START + timedelta(seconds=number),
        actor=Actor.PYTHON,
        operation=f"operation-{number}",
        arguments=sha256_of(b""),
        result="ok",
        duration_s=0.1,
    )


def write_journal(path: Path, entries: Iterable[JournalEntry]) -> None:
    """Each line is chained to the one before it."""
    prev = b""
    with path.open("wb") as stream:
        for seq, entry in enumerate(entries, start=1):
            text = entry.model_dump_json(exclude_defaults=True, exclude={"seq", "prev"})
            digest = hashlib.sha256(prev).hexdigest()
            prev = f'{{"schema_version":1,"seq":{seq},"prev":"sha256:{digest}",{text[1:]}\n'.encode()
            stream.write(prev)
