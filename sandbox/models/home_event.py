"""What happens in a home, as it happens."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sandbox.models.ids import TaskId
from sandbox.models.journal import JournalEntry
from sandbox.models.model import SparseModel


class HomeEventKind(StrEnum):
    """What an event is about."""

    TASK = "task"  # a task was created, edited, committed, closed, ...
    CHECK = "check"  # checks ran or were stopped, with their verdicts
    APPROVAL = "approval"  # a question to a person, or the answer
    PUSH = "push"
    PULL_REQUEST = "pr"
    DISK = "disk"  # `gc`, and what else frees or takes disk space
    REPOSITORY = "repository"  # all else that concerns no task


_CLEANINGS = ("gc", "layers-gc")
_LEFT_ALONE = ("kept ", "busy ")


class HomeEvent(SparseModel):
    """One entry of a journal. `id`: the journal and the place in it, such as `home/12`. Fields without a value are left
    out.
    """

    id: str
    at: datetime
    kind: HomeEventKind
    task_id: TaskId | None = None
    operation: JournalEntry

    def list_names(self) -> tuple[str, ...]:
        """What it is about, without the task's own id; of a cleaning what it did."""
        entry = self.operation
        if entry.operation in _CLEANINGS:
            return tuple(fact for fact in entry.facts.values() if not fact.startswith(_LEFT_ALONE))
        return tuple(name for name in entry.names if name and name != self.task_id)
