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


class HomeEvent(SparseModel):
    """One entry of a journal. `id`: the journal and the place in it, such as `home/12`. Fields without a value are left
    out.
    """

    id: str
    at: datetime
    kind: HomeEventKind
    task_id: TaskId | None = None
    operation: JournalEntry
