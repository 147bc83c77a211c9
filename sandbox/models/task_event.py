"""What happens in a task, as it happens."""

from __future__ import annotations

from enum import StrEnum

from pydantic import AwareDatetime

from sandbox.models.ids import CheckId, TaskId
from sandbox.models.journal import JournalEntry
from sandbox.models.logs import StreamName
from sandbox.models.model import SparseModel
from sandbox.models.runs import CheckRun


class TaskEventKind(StrEnum):
    """What happened."""

    OPERATION = "operation"  # an entry of the task's journal: `operation`
    STARTED = "started"  # a check: `run_id`, `check_id`
    OUTPUT = "output"  # of a check, safe to show: `run_id`, `check_id`, `stream`, `text`
    FINISHED = "finished"  # a check, with its verdict: `run`
    LOST = "lost"  # a check, without a verdict: what ran it was killed, or failed: `run_id`, `check_id`
    CLOSED = "closed"  # the task; the last event


class TaskEvent(SparseModel):
    """One event. Fields without a value are left out. `check_id` is unknown while a check of another version of the
    sandbox runs. `text`: whole lines of guest text, or the rest of the output at its end.
    """

    at: AwareDatetime
    kind: TaskEventKind
    task_id: TaskId
    operation: JournalEntry | None = None
    run_id: str | None = None
    check_id: CheckId | None = None
    stream: StreamName | None = None
    text: str | None = None
    run: CheckRun | None = None
