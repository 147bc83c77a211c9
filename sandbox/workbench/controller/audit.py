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
    Damage,
    JournalEntry,
    JournalState,
)
from sandbox.store import approvals, journal
from sandbox.store.journal_chain import Link, sha256, walk
from sandbox.store.journal_head import find_head
from sandbox.store.records import find_task
from sandbox.workbench.controller import journal_anchors
from sandbox.workbench.controller.services import Parts

_DECIDED = {ApprovalState.APPROVED, ApprovalState.DENIED, ApprovalState.USED, ApprovalState.REVOKED}


def verify(services: Parts) -> AuditReport:
    """Verify all chains. The home's journal is read first, because it holds the anchors of the others."""
    home = _Audit(services.home.journal(journal.HOME))
    known = home.read_anchors()
    found = [home.state(_head_of_home(services))]
    names = {path.stem for path in _journals(services)} | known.keys()
    found += [_Audit(services.home.journal(name)).state(known.get(name, {})) for name in sorted(names - {journal.HOME})]
    return AuditReport(intact=not any(state.broken for state in found), journals=tuple(found))


def _journals(services: Parts) -> list[Path]:
    return sorted(services.home.journal(journal.HOME).parent.glob("*.jsonl"))


def _head_of_home(services: Parts) -> Mapping[int, str]:
    """The entry in the head file. For a damaged file: entry 0, which no journal has, so the check fails."""
    try:
        head = find_head(services.home)
    except (OSError, ValueError):
        return {0: ""}
    return {head.seq: head.sha256} if head else {}


@dataclass
class _Audit:
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
        found: dict[str, dict[int, str]] = {}
        for link in _links(self.path):
            entry = journal.entry_of(link.content) if link.seq else None
            head = journal_anchors.read(entry) if entry is not None else None
            if head is not None:
                found.setdefault(head[0], {})[head[1].seq] = head[1].sha256
        return found

    def state(self, anchored: Mapping[int, str]) -> JournalState:
        """`anchored`: entries, by number and digest, that are known to have existed."""
        for link in _links(self.path):
            self._take(link, anchored)
        return JournalState(
            name=self.path.stem,
            entries=self.entries,
            unchained=self.unchained,
            unreadable=self.unreadable,
            seq=self.seq,
            head=self.head,
            broken=self.broken or self._missed(anchored),
        )

    def _take(self, link: Link, anchored: Mapping[int, str]) -> None:
        self.broken = self.broken or link.broken
        if link.seq is None:
            is_entry = journal.entry_of(link.content) is not None
            self.unchained += is_entry
            self.unreadable += not is_entry
            return
        self.entries += 1
        self.seq, self.head = link.seq, link.sha256
        if link.seq in anchored:
            self._digests[link.seq] = link.sha256
            if anchored[link.seq] != link.sha256:
                self.broken = self.broken or _edited(link)

    def _missed(self, anchored: Mapping[int, str]) -> BrokenEntry | None:
        gone = sorted(anchored.keys() - self._digests.keys())
        if not gone:
            return None
        if not self.entries:
            return BrokenEntry(damage=Damage.MISSING, line=0, seq=gone[-1], details=f"{self.path.name} does not exist")
        details = f"the last entry is {self.seq}, but entry {gone[-1]} was on disk before" if gone[-1] else _HEAD
        return BrokenEntry(damage=Damage.TRUNCATED, line=0, seq=gone[0], details=details)


_HEAD = "the head file beside the journal is damaged"


def _edited(link: Link) -> BrokenEntry:
    details = f"entry {link.seq} in line {link.line} has changed since its digest was recorded"
    return BrokenEntry(damage=Damage.EDITED, line=link.line, seq=link.seq, details=details)


def _links(path: Path) -> Iterator[Link]:
    try:
        with path.open("rb") as stream:
            yield from walk(stream)
    except FileNotFoundError:
        return


@dataclass(frozen=True, order=True)
class _Place:
    """Position of an entry: enough to sort all entries of a home without keeping them in memory."""

    at: datetime
    journal: str
    line: int
    offset: int
    length: int


def export(services: Parts, since: datetime | None, task_id: str | None) -> Iterator[AuditRecord]:
    """All records by time; each entry is read when the iterator reaches it. Raises: `not_found` for a task."""
    names = [path.stem for path in _journals(services)]
    if task_id is not None:
        names = [find_task(services.home, task_id, allow_closed=True).id]
    start = since or datetime.min.replace(tzinfo=UTC)
    start = start if start.tzinfo else start.replace(tzinfo=UTC)
    decided = [a for a in _decided(services) if task_id in {None, a.task_id} and (a.decided_at or a.created_at) >= start]
    places = sorted(place for name in names for place in _places(services.home.journal(name)) if place.at >= start)
    return _merged(services, places, decided)


def _merged(services: Parts, places: list[_Place], decided: list[Approval]) -> Iterator[AuditRecord]:
    for place in places:
        while decided and _decision_of(decided[0]).at <= place.at:
            yield _decision_of(decided.pop(0))
        record = _record_at(services.home.journal(place.journal), place)
        if record is not None:
            yield record
    yield from map(_decision_of, decided)


def _places(path: Path) -> Iterator[_Place]:
    offset = 0
    if not path.is_file():
        return
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, start=1):
            entry = journal.entry_of(raw)
            if entry is not None:
                yield _Place(_aware(entry), path.stem, number, offset, len(raw))
            offset += len(raw)


def _aware(entry: JournalEntry) -> datetime:
    return entry.at if entry.at.tzinfo else entry.at.replace(tzinfo=UTC)


def _record_at(path: Path, place: _Place) -> AuditRecord | None:
    with path.open("rb") as stream:
        stream.seek(place.offset)
        line = stream.read(place.length).rstrip(b"\n")
    entry = journal.entry_of(line)
    if entry is None:  # the file changed since it was indexed
        return None
    return AuditRecord(
        kind="entry", at=place.at, journal=place.journal, line=place.line, sha256=sha256(line), entry=entry
    )


def _decided(services: Parts) -> list[Approval]:
    found = (a for a in approvals.list_all(services.home) if a.decided_at is not None and a.state in _DECIDED)
    return sorted(found, key=lambda a: (a.decided_at or a.created_at, a.id))


def _decision_of(approval: Approval) -> AuditRecord:
    return AuditRecord(kind="approval", at=approval.decided_at or approval.created_at, approval=approval)
