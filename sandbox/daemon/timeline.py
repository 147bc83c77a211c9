"""What happened to a task, from its journal, in the words of a page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath

from sandbox.models import HomeEventKind, JournalEntry
from sandbox.workbench.controller.home_events import make_event

_EDITS = frozenset({"patch", "edit", "write", "delete", "rename", "apply", "clean", "restore", "sync", "checkout"})
_WORDS = {HomeEventKind.PULL_REQUEST: "pull request"}


@dataclass(frozen=True)
class Moment:
    """One entry. `kind`: `edit`, or a kind of `sandbox events`. `who`: the user, and the client that acted for them."""

    kind: str
    who: str
    entry: JournalEntry


def build_timeline(task_id: str, entries: Iterable[JournalEntry]) -> tuple[Moment, ...]:
    """Newest first. Pure."""
    moments = [Moment(_find_kind(task_id, entry), _find_caller(entry), entry) for entry in entries]
    return tuple(moments[::-1])


def _find_kind(task_id: str, entry: JournalEntry) -> str:
    if entry.operation in _EDITS:
        return "edit"
    kind = make_event(task_id, entry).kind
    return _WORDS.get(kind, kind.value)


def _find_caller(entry: JournalEntry) -> str:
    if entry.by is None:
        return entry.actor.value
    acted = f"{entry.by.client} {entry.by.client_version}".strip() or PurePath(entry.by.program).name
    return f"{entry.by.user} ({f'{entry.actor.value} {acted}'.rstrip()})"
