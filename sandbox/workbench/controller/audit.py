"""Use-cases on the journals of a home: verify that they are as written, and export all of them.

What this detects and what it does not: docs/audit.md.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sandbox.models import (
    Approval,
    ApprovalState,
    AuditRecord,
    AuditReport,
    BrokenEntry,
    JournalDamage,
    JournalState,
)
from sandbox.store import approvals, journal
from sandbox.store.home import Home
from sandbox.store.journal_chain import ChainHead, ChainLink, sha256, walk_chain
from sandbox.store.journal_head import find_head
from sandbox.store.journal_order import TimedLine, read_by_time, with_zone
from sandbox.store.records import find_task
from sandbox.workbench.controller import journal_anchors
from sandbox.workbench.controller.known_digests import KnownDigests

_DECIDED_STATES = {ApprovalState.APPROVED, ApprovalState.DENIED, ApprovalState.USED, ApprovalState.REVOKED}


def verify_journals(home: Home, only: Collection[str] | None = None) -> AuditReport:
    """Verify all chains, line by line, or that of the home and of the journals `only`.

    The home's journal is read first, because it holds the anchors of the others. `gc` may remove one of these before
    its turn, and notes that in the home's journal first. So what is missing is verified once more.
    """
    report = _verify_once(home, only)
    missing = {state.name for state in report.journals if _is_missing(state)} - {journal.HOME_JOURNAL}
    if not missing:
        return report
    again = {state.name: state for state in _verify_once(home, missing).journals if state.name in missing}
    states = tuple(again.get(state.name, state) for state in report.journals)
    return AuditReport(intact=not any(state.broken for state in states), journals=states)


def _is_missing(state: JournalState) -> bool:
    return state.broken is not None and state.broken.damage is JournalDamage.MISSING


def _verify_once(home: Home, only: Collection[str] | None) -> AuditReport:
    noted = _Noted(only)
    of_home = _JournalAudit(home.journal(journal.HOME_JOURNAL), _read_home_head(home), note_line=noted.add)
    states = [of_home.read_state()]
    names = {path.stem for path in _list_journals(home) if noted.wants(path.stem)} | noted.anchored.keys()
    for name in sorted(names - {journal.HOME_JOURNAL}):
        known, removed = noted.anchored.pop(name, KnownDigests()), noted.removed.get(name)
        states.append(_JournalAudit(home.journal(name), known, removed).read_state())
    return AuditReport(intact=not any(state.broken for state in states), journals=tuple(states))


class _Noted:
    """What the home's journal says of the others: digests of their entries, and the last entry of removed ones."""

    def __init__(self, only: Collection[str] | None) -> None:
        self.anchored: dict[str, KnownDigests] = {}
        self.removed: dict[str, ChainHead] = {}
        self._only = only

    def wants(self, name: str) -> bool:
        """Whether this journal is verified."""
        return self._only is None or name in self._only

    def add(self, line: bytes) -> None:
        """Add one line of the home's journal."""
        found = journal_anchors.parse_anchor(line)
        if found is not None and self.wants(found.name):
            self.anchored.setdefault(found.name, KnownDigests()).add(found.head.seq, found.head.sha256)
            if found.is_removal:
                self.removed[found.name] = found.head


def _list_journals(home: Home) -> list[Path]:
    return sorted(home.journal(journal.HOME_JOURNAL).parent.glob("*.jsonl"))


def _read_home_head(home: Home) -> KnownDigests:
    """The entry in the head file. For a damaged file: entry 0, which no journal has, so the check fails."""
    known = KnownDigests()
    try:
        head = find_head(home)
    except (OSError, ValueError):
        known.add(0, "")
        return known
    if head is not None:
        known.add(head.seq, head.sha256)
    return known


@dataclass
class _JournalAudit:
    """Counts and findings of one journal while it is read.

    `known`: entries that are known to have existed. `removed`: the last entry that it had when `gc` removed it.
    `note_line`: is called with each line of the chain.
    """

    path: Path
    known: KnownDigests
    removed: ChainHead | None = None
    note_line: Callable[[bytes], None] | None = None
    seq: int = 0
    head: str | None = None
    entries: int = 0
    unchained: int = 0
    unreadable: int = 0
    broken: BrokenEntry | None = None

    def read_state(self) -> JournalState:
        for link in _read_links(self.path):
            self._add_link(link)
        is_gone = self.removed is not None and not self.path.exists()
        if self.removed is not None and is_gone:
            self.seq, self.head = self.removed.seq, self.removed.sha256
        return JournalState(
            name=self.path.stem,
            entries=self.entries,
            unchained=self.unchained,
            unreadable=self.unreadable,
            seq=self.seq,
            head=self.head,
            broken=self.broken or self._find_missing(is_gone=is_gone),
            removed=is_gone,
        )

    def _add_link(self, link: ChainLink) -> None:
        self.broken = self.broken or link.broken
        if link.seq is None:
            is_entry = journal.parse_entry(link.content) is not None
            self.unchained += is_entry
            self.unreadable += not is_entry
            return
        self.entries += 1
        self.seq, self.head = link.seq, link.sha256
        if not self.known.confirm(link.seq, self.head):
            self.broken = self.broken or _describe_edit(link)
        if self.note_line is not None:
            self.note_line(link.content)

    def _find_missing(self, *, is_gone: bool) -> BrokenEntry | None:
        """Entries that are known and not there. A removed journal may not have had any after the last one."""
        unseen = self.known.find_unseen()
        if unseen is None or (is_gone and unseen[1] <= self.seq):
            return None
        first, last = unseen
        if not self.entries:
            return BrokenEntry(
                damage=JournalDamage.MISSING, line=0, seq=last, details=f"{self.path.name} does not exist"
            )
        details = f"the last entry is {self.seq}, but entry {last} was on disk before" if last else _HEAD_FILE_DAMAGED
        return BrokenEntry(damage=JournalDamage.TRUNCATED, line=0, seq=first, details=details)


_HEAD_FILE_DAMAGED = "the head file beside the journal is damaged"


def _describe_edit(link: ChainLink) -> BrokenEntry:
    details = f"entry {link.seq} in line {link.line} has changed since its digest was recorded"
    return BrokenEntry(damage=JournalDamage.EDITED, line=link.line, seq=link.seq, details=details)


def _read_links(path: Path) -> Iterator[ChainLink]:
    try:
        with path.open("rb") as stream:
            yield from walk_chain(stream)
    except FileNotFoundError:
        return


def export_records(home: Home, since: datetime | None, task_id: str | None) -> Iterator[AuditRecord]:
    """All records by time; each entry is read when the iterator reaches it. Raises: `not_found` for a task."""
    names = [path.stem for path in _list_journals(home)]
    if task_id is not None:
        names = [find_task(home, task_id, allow_closed=True).id]
    start = with_zone(since or datetime.min)
    decided = [
        a
        for a in _list_decided_approvals(home)
        if task_id in {None, a.task_id} and (a.decided_at or a.created_at) >= start
    ]
    lines = heapq.merge(*(read_by_time(home.journal(name), start) for name in names))
    return heapq.merge(
        map(_as_audit_record, decided), filter(None, map(_read_record, lines)), key=lambda record: record.at
    )


def _read_record(line: TimedLine) -> AuditRecord | None:
    entry = journal.parse_entry(line.content)
    if entry is None:
        return None
    return AuditRecord(
        kind="entry",
        at=with_zone(entry.at),
        journal=line.journal,
        line=line.number,
        sha256=sha256(line.content),
        entry=entry,
    )


def _list_decided_approvals(home: Home) -> list[Approval]:
    found = (a for a in approvals.list_approvals(home) if a.decided_at is not None and a.state in _DECIDED_STATES)
    return sorted(found, key=lambda a: (a.decided_at or a.created_at, a.id))


def _as_audit_record(approval: Approval) -> AuditRecord:
    return AuditRecord(kind="approval", at=approval.decided_at or approval.created_at, approval=approval)
