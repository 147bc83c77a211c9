"""Use-cases on the journals of a home: verify that they are as written, and export all of them.

What this detects and what it does not: docs/audit.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from sandbox.models import (
    Approval,
    ApprovalState,
    AuditRecord,
    AuditReport,
    BrokenEntry,
    JournalDamage,
    JournalEntry,
    JournalState,
)
from sandbox.store import approvals, journal
from sandbox.store.home import Home
from sandbox.store.journal_chain import ChainLink, sha256, walk_chain
from sandbox.store.journal_head import find_head
from sandbox.store.records import find_task
from sandbox.workbench.controller import journal_anchors

_DECIDED_STATES = {ApprovalState.APPROVED, ApprovalState.DENIED, ApprovalState.USED, ApprovalState.REVOKED}


def verify_journals(home: Home) -> AuditReport:
    """Verify all chains. The home's journal is read first, because it holds the anchors of the others."""
    of_home = _JournalAudit(home.journal(journal.HOME_JOURNAL))
    known = of_home.read_anchors()
    states = [of_home.read_state(_read_home_head(home))]
    names = {path.stem for path in _list_journals(home)} | known.keys()
    states += [
        _JournalAudit(home.journal(name)).read_state(known.get(name, {}))
        for name in sorted(names - {journal.HOME_JOURNAL})
    ]
    return AuditReport(intact=not any(state.broken for state in states), journals=tuple(states))


def _list_journals(home: Home) -> list[Path]:
    return sorted(home.journal(journal.HOME_JOURNAL).parent.glob("*.jsonl"))


def _read_home_head(home: Home) -> Mapping[int, str]:
    """The entry in the head file. For a damaged file: entry 0, which no journal has, so the check fails."""
    try:
        head = find_head(home)
    except (OSError, ValueError):
        return {0: ""}
    return {head.seq: head.sha256} if head else {}


@dataclass
class _JournalAudit:
    """Counts and findings of one journal while it is read."""

    path: Path
    seq: int = 0
    head: str | None = None
    entries: int = 0
    unchained: int = 0
    unreadable: int = 0
    broken: BrokenEntry | None = None
    _digests: dict[int, str] = field(default_factory=dict)

    def read_anchors(self) -> dict[str, dict[int, str]]:
        """The heads of other journals that this journal notes: by journal name, then digest by entry number."""
        anchors: dict[str, dict[int, str]] = {}
        for link in _read_links(self.path):
            entry = journal.parse_entry(link.content) if link.seq else None
            head = journal_anchors.parse_anchor(entry) if entry is not None else None
            if head is not None:
                anchors.setdefault(head[0], {})[head[1].seq] = head[1].sha256
        return anchors

    def read_state(self, anchored: Mapping[int, str]) -> JournalState:
        """`anchored`: entries, by number and digest, that are known to have existed."""
        for link in _read_links(self.path):
            self._add_link(link, anchored)
        return JournalState(
            name=self.path.stem,
            entries=self.entries,
            unchained=self.unchained,
            unreadable=self.unreadable,
            seq=self.seq,
            head=self.head,
            broken=self.broken or self._find_missing(anchored),
        )

    def _add_link(self, link: ChainLink, anchored: Mapping[int, str]) -> None:
        self.broken = self.broken or link.broken
        if link.seq is None:
            is_entry = journal.parse_entry(link.content) is not None
            self.unchained += is_entry
            self.unreadable += not is_entry
            return
        self.entries += 1
        self.seq, self.head = link.seq, link.sha256
        if link.seq in anchored:
            self._digests[link.seq] = link.sha256
            if anchored[link.seq] != link.sha256:
                self.broken = self.broken or _describe_edit(link)

    def _find_missing(self, anchored: Mapping[int, str]) -> BrokenEntry | None:
        gone = sorted(anchored.keys() - self._digests.keys())
        if not gone:
            return None
        if not self.entries:
            return BrokenEntry(
                damage=JournalDamage.MISSING, line=0, seq=gone[-1], details=f"{self.path.name} does not exist"
            )
        details = (
            f"the last entry is {self.seq}, but entry {gone[-1]} was on disk before" if gone[-1] else _HEAD_FILE_DAMAGED
        )
        return BrokenEntry(damage=JournalDamage.TRUNCATED, line=0, seq=gone[0], details=details)


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


@dataclass(frozen=True, order=True)
class _EntryPosition:
    """Position of an entry: enough to sort all entries of a home without keeping them in memory."""

    at: datetime
    journal: str
    line: int
    offset: int
    length: int


def export_records(home: Home, since: datetime | None, task_id: str | None) -> Iterator[AuditRecord]:
    """All records by time; each entry is read when the iterator reaches it. Raises: `not_found` for a task."""
    names = [path.stem for path in _list_journals(home)]
    if task_id is not None:
        names = [find_task(home, task_id, allow_closed=True).id]
    start = since or datetime.min.replace(tzinfo=UTC)
    start = start if start.tzinfo else start.replace(tzinfo=UTC)
    decided = [
        a
        for a in _list_decided_approvals(home)
        if task_id in {None, a.task_id} and (a.decided_at or a.created_at) >= start
    ]
    places = sorted(place for name in names for place in _read_positions(home.journal(name)) if place.at >= start)
    return _merge_by_time(home, places, decided)


def _merge_by_time(home: Home, places: list[_EntryPosition], decided: list[Approval]) -> Iterator[AuditRecord]:
    for place in places:
        while decided and _as_audit_record(decided[0]).at <= place.at:
            yield _as_audit_record(decided.pop(0))
        record = _read_record(home.journal(place.journal), place)
        if record is not None:
            yield record
    yield from map(_as_audit_record, decided)


def _read_positions(path: Path) -> Iterator[_EntryPosition]:
    offset = 0
    if not path.is_file():
        return
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, start=1):
            entry = journal.parse_entry(raw)
            if entry is not None:
                yield _EntryPosition(_time_with_zone(entry), path.stem, number, offset, len(raw))
            offset += len(raw)


def _time_with_zone(entry: JournalEntry) -> datetime:
    return entry.at if entry.at.tzinfo else entry.at.replace(tzinfo=UTC)


def _read_record(path: Path, place: _EntryPosition) -> AuditRecord | None:
    with path.open("rb") as stream:
        stream.seek(place.offset)
        line = stream.read(place.length).rstrip(b"\n")
    entry = journal.parse_entry(line)
    if entry is None:  # the file changed since it was indexed
        return None
    return AuditRecord(
        kind="entry", at=place.at, journal=place.journal, line=place.line, sha256=sha256(line), entry=entry
    )


def _list_decided_approvals(home: Home) -> list[Approval]:
    found = (a for a in approvals.list_approvals(home) if a.decided_at is not None and a.state in _DECIDED_STATES)
    return sorted(found, key=lambda a: (a.decided_at or a.created_at, a.id))


def _as_audit_record(approval: Approval) -> AuditRecord:
    return AuditRecord(kind="approval", at=approval.decided_at or approval.created_at, approval=approval)
