"""What an audit of the journals finds, and what it exports."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

from sandbox.models.approvals import Approval
from sandbox.models.ids import Sha256
from sandbox.models.journal import JournalEntry
from sandbox.models.model import Model


class Damage(StrEnum):
    """What happened to a journal, as far as its chain tells.

    `truncated`: entries at the end are missing that the home's journal or its head file knows of. `missing`: so is the
    whole file. `inserted`: a line without a place in the chain, after the chain began.
    """

    EDITED = "edited"
    REMOVED = "removed"
    REORDERED = "reordered"
    INSERTED = "inserted"
    TRUNCATED = "truncated"
    MISSING = "missing"


class BrokenEntry(Model):
    """The first place where a journal is not what was written. `seq`: of the entry concerned, where it has one.

    `line`: in the file, counted from 1; 0 when there is no such line.
    """

    damage: Damage
    line: int
    seq: int | None
    details: str


class JournalState(Model):
    """One journal as an audit found it. `name`: a task's id, or `home`.

    `entries`: in the chain. `unchained`: older ones, from before journals were chained: from then on they cannot be
    changed unseen either. `unreadable`: lines that an interrupted write left. `seq`, `head`: number and sha256 of the
    last entry's line, to compare with an export that is kept elsewhere.
    """

    name: str
    entries: int
    unchained: int
    unreadable: int
    seq: int
    head: Sha256 | None
    broken: BrokenEntry | None = None


class AuditReport(Model):
    """The answer of `audit verify`: every journal of the home, and whether all are intact."""

    intact: bool
    journals: tuple[JournalState, ...]


class AuditRecord(Model):
    """One line of `audit export`: an entry of a journal, or an approval that was decided.

    `at`: when the operation began, or the decision. `journal`, `line`, `sha256`: where an entry is and the digest of
    its line as it is in the file; '' and 0 for approvals.
    """

    kind: Literal["entry", "approval"]
    at: datetime
    journal: str = ""
    line: int = 0
    sha256: str = ""
    entry: JournalEntry | None = None
    approval: Approval | None = None
