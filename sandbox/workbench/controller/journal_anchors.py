"""Record the heads of journals in another place, so that the removal of entries at a journal's end is detected.

Each entry that is fsynced into a task's journal is noted in the home's journal. For the home's journal, the last
fsynced entry is noted in a file beside it. The notes are not fsynced: after a power failure a note may be older than
the journal on disk, but never newer.
"""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sandbox.errors import SandboxError
from sandbox.lazy_pattern import lazy_pattern
from sandbox.models import TASK_ID_PATTERN, JournalEntry
from sandbox.store import journal
from sandbox.store.home import Home
from sandbox.store.journal_chain import ChainHead, sha256
from sandbox.store.journal_head import save_head

if TYPE_CHECKING:
    from sandbox.workbench.controller.services import Surface

OPERATION = "anchor"
_TASK_ID = lazy_pattern(TASK_ID_PATTERN)
_MARK = f'"operation":"{OPERATION}"'.encode()
_SEQ = lazy_pattern(r"[0-9]{1,15}")


def append_anchor(home: Home, surface: Surface, name: str, head: ChainHead) -> None:
    """Note that an entry was written. Does not raise: the operation has been done and is in its journal."""
    with suppress(SandboxError, OSError):
        if name == journal.HOME_JOURNAL:
            save_head(home, head)
        else:
            journal.append_entry(home, journal.HOME_JOURNAL, _build_entry(surface, name, head), synced=False)


def parse_anchor(line: bytes) -> tuple[str, ChainHead] | None:
    """The journal name and head that a line of the home's journal notes; None for any other line."""
    if _MARK not in line:
        return None
    try:
        document = json.loads(line)
        name, seq, digest = (str(document["facts"][key]) for key in ("journal", "seq", "sha256"))
    except (ValueError, LookupError, TypeError):
        return None
    if document.get("operation") != OPERATION or not _TASK_ID.fullmatch(name) or not _SEQ.fullmatch(seq):
        return None
    return name, ChainHead(int(seq), digest)


def _build_entry(surface: Surface, name: str, head: ChainHead) -> JournalEntry:
    facts = {"journal": name, "seq": str(head.seq), "sha256": head.sha256}
    return JournalEntry(
        at=datetime.now(UTC),
        actor=surface.actor,
        operation=OPERATION,
        arguments=sha256(b""),
        facts=facts,
        result="ok",
        duration_s=0.0,
    )
