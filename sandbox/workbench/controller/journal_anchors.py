"""Record the heads of journals in another place, so that the removal of entries at a journal's end is detected.

Each entry that is fsynced into a task's journal is noted in the home's journal. For the home's journal, the last
fsynced entry is noted in a file beside it. The notes are not fsynced: after a power failure a note may be older than
the journal on disk, but never newer.

Before `gc` removes the journal of a forgotten task, its last entry is noted too, and this note is fsynced: the digest
of the last entry covers all before it, so a copy of the journal can be proven with it (docs/adr/0153).
"""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from sandbox.errors import SandboxError
from sandbox.lazy_pattern import lazy_pattern
from sandbox.models import TASK_ID_PATTERN, JournalEntry
from sandbox.store import journal
from sandbox.store.home import Home
from sandbox.store.journal import ANCHOR
from sandbox.store.journal_chain import ChainHead, sha256
from sandbox.store.journal_head import save_head

if TYPE_CHECKING:
    from sandbox.workbench.controller.services import Surface

REMOVAL = "journal-remove"
_TASK_ID = lazy_pattern(TASK_ID_PATTERN)
_MARKS = tuple(f'"operation":"{name}"'.encode() for name in (ANCHOR, REMOVAL))
_SEQ = lazy_pattern(r"[0-9]{1,15}")


def append_anchor(home: Home, surface: Surface, name: str, head: ChainHead) -> None:
    """Note that an entry was written. Does not raise: the operation has been done and is in its journal."""
    with suppress(SandboxError, OSError):
        if name == journal.HOME_JOURNAL:
            save_head(home, head)
        else:
            journal.append_entry(home, journal.HOME_JOURNAL, _build_entry(surface, ANCHOR, name, head), synced=False)


def append_removal(home: Home, surface: Surface, name: str, head: ChainHead) -> None:
    """Note that a journal is removed, on disk before this returns. Raises: `internal` if that cannot be written."""
    entry = _build_entry(surface, REMOVAL, name, head)
    last = journal.append_entry(home, journal.HOME_JOURNAL, entry)
    append_anchor(home, surface, journal.HOME_JOURNAL, last)


class Anchor(NamedTuple):
    """What a line of the home's journal notes of another journal. `is_removal`: the journal was removed then."""

    name: str
    head: ChainHead
    is_removal: bool


def parse_anchor(line: bytes) -> Anchor | None:
    """What a line of the home's journal notes; None for any other line."""
    if not any(mark in line for mark in _MARKS):
        return None
    try:
        document = json.loads(line)
        name, seq, digest = (str(document["facts"][key]) for key in ("journal", "seq", "sha256"))
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    operation = document.get("operation")
    if operation not in {ANCHOR, REMOVAL} or not _TASK_ID.fullmatch(name) or not _SEQ.fullmatch(seq):
        return None
    return Anchor(name, ChainHead(int(seq), digest), operation == REMOVAL)


def _build_entry(surface: Surface, operation: str, name: str, head: ChainHead) -> JournalEntry:
    facts = {"journal": name, "seq": str(head.seq), "sha256": head.sha256}
    return JournalEntry(
        at=datetime.now(UTC),
        actor=surface.actor,
        operation=operation,
        arguments=sha256(b""),
        facts=facts,
        result="ok",
        duration_s=0.0,
    )
