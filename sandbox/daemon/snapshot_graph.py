"""The states of a task as a graph: what each continues, and which tasks were forked from it.

Theory. A snapshot does not say what it continues; the journal does. A task's files begin at its base commit. A snapshot
or a commit continues the state before it, and becomes the state; a restore goes back to another one, so what is taken
next is a branch from there. A fork is a branch that leaves the task.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from sandbox.models import JournalEntry, Snapshot

ROW, COLUMN, MARGIN = 36, 28, 18
"""Sizes of the picture."""

MAX_STATES = 100
"""Shown, the newest ones."""

START = "base"
_OPERATIONS = {"restore": 1, "commit": 1, "fork": 2}  # with so many names at least


@dataclass(frozen=True)
class State:
    """`name`: of a snapshot, a commit, or `base`; of a fork the id of its task. `is_current`: the files continue it."""

    name: str
    kind: Literal["base", "commit", "snapshot", "fork"]
    parent: str | None = None
    label: str = ""
    at: datetime | None = None
    is_current: bool = False
    column: int = 0
    row: int = 0

    @property
    def x(self) -> int:
        """Of its centre."""
        return MARGIN + COLUMN * self.column

    @property
    def y(self) -> int:
        """Of its centre."""
        return ROW // 2 + ROW * self.row


@dataclass(frozen=True)
class Graph:
    """States from the oldest, one in each row. `edges`: SVG paths, down the column of the parent and then across."""

    states: tuple[State, ...]

    @property
    def edges(self) -> tuple[str, ...]:
        """None for a state with a parent that is not shown."""
        by_name = {state.name: state for state in self.states}
        pairs = ((by_name[one.parent], one) for one in self.states if one.parent in by_name)
        return tuple(f"M{above.x} {above.y}L{above.x} {one.y - ROW // 2}L{one.x} {one.y}" for above, one in pairs)

    @property
    def width(self) -> int:
        """Of the picture."""
        return 2 * MARGIN + COLUMN * max(state.column for state in self.states)

    @property
    def height(self) -> int:
        """Of the picture."""
        return ROW * len(self.states)


def build_graph(task_id: str, snapshots: Sequence[Snapshot], entries: Iterable[JournalEntry]) -> Graph:
    """The graph of a task. `entries`: of its journal; what they do not explain continues the state before it. Pure."""
    states = {START: State(START, "base")}
    current = head = START
    for _, event in sorted(_list_events(snapshots, entries), key=lambda found: found[0]):
        if isinstance(event, Snapshot):
            states[event.id] = State(event.id, "snapshot", current, event.label, event.created_at)
            current = event.id
        elif event.operation == "commit":
            head = event.names[-1]
            states[head] = State(head, "commit", current, at=event.at)
            current = head
        elif event.operation == "restore":
            target = {"head": head}.get(event.names[0], event.names[0])
            current = target if target in states else current
        elif event.names[1] != task_id:
            origin, made = event.names[:2]
            states[made] = State(made, "fork", origin if origin in states else current, at=event.at)
    states[current] = replace(states[current], is_current=True)
    return Graph(_place(list(states.values())[-MAX_STATES:]))


def _list_events(
    snapshots: Sequence[Snapshot], entries: Iterable[JournalEntry]
) -> Iterable[tuple[datetime, Snapshot | JournalEntry]]:
    """Each with the time at which it had been done: a restore ends after it has taken a snapshot."""
    yield from ((one.created_at, one) for one in snapshots)
    for entry in entries:
        if entry.result == "ok" and len(entry.names) >= _OPERATIONS.get(entry.operation, len(entry.names) + 1):
            yield entry.at + timedelta(seconds=entry.duration_s), entry


def _place(states: list[State]) -> tuple[State, ...]:
    """The first state that continues another one is below it; the others, and forks, have columns of their own."""
    columns: dict[str | None, int] = {}
    continued: set[str | None] = set()
    last = 0
    placed = []
    for row, state in enumerate(states):
        is_below = state.kind != "fork" and state.parent not in continued
        if is_below:
            continued.add(state.parent)
        else:
            last += 1
        columns[state.name] = columns.get(state.parent, 0) if is_below else last
        placed.append(replace(state, column=columns[state.name], row=row))
    return tuple(placed)
