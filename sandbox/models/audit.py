"""Results of an audit of the journals, and the records it exports."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

from sandbox.models.approvals import Approval
from sandbox.models.ids import Sha256
from sandbox.models.journal import JournalEntry
from sandbox.models.model import Model


class JournalDamage(StrEnum):
    """What happened to a journal, as far as its chain shows.

    `truncated`: entries at the end are missing that the home's journal or its head file refers to. `missing`: the whole
    file is. `inserted`: a line without a place in the chain, after the chain began.
    """

    EDITED = "edited"
    REMOVED = "removed"
    REORDERED = "reordered"
    INSERTED = "inserted"
    TRUNCATED = "truncated"
    MISSING = "missing"


class BrokenEntry(Model):
    """The first place where a journal differs from what was written. `seq`: of that entry, if it has one.

    `line`: in the file, counted from 1; 0 if there is no such line.
    """

    damage: JournalDamage
    line: int
    seq: int | None
    details: str


class JournalState(Model):
    """One journal as an audit found it. `name`: a task's id, or `home`.

    `entries`: number of entries in the chain. `unchained`: number of older ones, from before journals were chained;
    since then they cannot be changed unnoticed either. `unreadable`: number of lines that an interrupted write left.
    `seq`, `head`: number and sha256 of the last entry's line, to compare with an export that is kept elsewhere.
    `removed`: `gc` removed it (`keep.journals_days`), and the home's journal has its last entry.
    """

    name: str
    entries: int
    unchained: int
    unreadable: int
    seq: int
    head: Sha256 | None
    broken: BrokenEntry | None = None
    removed: bool = False


class AuditReport(Model):
    """The answer of `audit verify`: all journals of the home, and whether all are intact."""

    intact: bool
    journals: tuple[JournalState, ...]


class AuditRecord(Model):
    """One line of `audit export`: an entry of a journal, or a decided approval.

    `at`: start of the operation, or time of the decision. `journal`, `line`: where the entry is. `sha256`: digest of
    its line in the file. '' and 0 for approvals.
    """

    kind: Literal["entry", "approval"]
    at: datetime
    journal: str = ""
    line: int = 0
    sha256: str = ""
    entry: JournalEntry | None = None
    approval: Approval | None = None
