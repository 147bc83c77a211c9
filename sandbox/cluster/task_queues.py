"""What the workflow of a task and its workers have in common: names of queues, activities and operations.

As the workflow, this module does not import the rest of the package, because Temporal loads it in a sandbox of its own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

PERFORM, OFFER, TAKE_OVER, DRAIN = "perform", "offer", "take-over", "drain"
FIND_CLASSES, PUBLISH = "find-classes", "publish"
READS = frozenset({"read-file", "search", "status", "diff", "list-checks", "list-snapshots", "pr-status"})
READS_OF_RUNS = frozenset({"list-runs", "find-run", "run-log", "read-log", "test-results", "usage", "journal"})
"""Reading ones of a later version, which before it waited for their turn to be refused (`_LOOKS_AT_RUNS`)."""
LATER_READS = frozenset(
    {"look", "past-run", "artifacts", "read-artifact", "stop-checks", "map", "impact", "check-limits", "find-launch"}
)
"""Those of a still later one (`_LOOKS_AT_MORE`). Checks are stopped while the operation that runs them has its turn."""

READS_OF_CHANGES = frozenset({"export-changes"})
"""Those of the next version (`_LOOKS_AT_CHANGES`)."""

READS_OF_STATES = frozenset({"clean-state"})
"""Those of the one after it (`_LOOKS_AT_STATES`). Never add to a set: a history has the mark of what was in it."""

ALL_READS = READS | READS_OF_RUNS | LATER_READS | READS_OF_CHANGES | READS_OF_STATES
NO_ROOM = "no_room"
"""Of what a task refuses because other operations of it are in progress; it takes it when these are answered."""

STOPS = frozenset({"stop-checks"})
"""Never refused for a long history: they end the operation for which it is long."""

PUBLISHES = frozenset({"push", "open-pr", "pr-status"})
"""Carried out by a controller that publishes, not by the worker that has the task."""

PUBLISHER_S = 30.0
"""How long a controller that publishes may not take an operation; reached: the operation fails. The default."""

MOST_EVENTS = 30_000
"""Of a history, until reading operations are refused. The server ends a workflow that has 51,200."""

RENEWED_EVENTS = 1500
"""Of a history, about 135 operations, until a new one begins between two of them. A worker that does not know the task
repeats its history, at 5 ms an operation (ADR 173). The server would advise it at 4,096 events.
"""

ANSWER_BYTES = 1024**2
"""Of an answer, as it is sent. Larger ones are refused: Temporal keeps every answer in its history."""

ARGUMENT_BYTES, LARGE_BYTES = 768 * 1024, 16 * 1024
"""Of an operation, as it is sent: at most, and from when on a caller first asks for room."""

LOSS = (
    "{worker} was lost. The task continues on {successor} from its last completed operation; what an operation in "
    "progress had changed is lost."
)
"""What a task lost with its worker, for people."""

TASK_EXISTS, EPOCH_ENDED = "task_exists", "epoch_ended"
"""What a worker says of a task that it cannot continue now: it has it in another state, or still works on it; another
worker has claimed the epoch that it was offered, one that was lost just after that.
"""

OF_ONE_WORKER = frozenset(
    {"auth_failed", "invalid_input", "network_error", "quota_exceeded", "remote_not_found", "timeout"}
)
"""Codes of errors for which one worker cannot continue a task, and another one may: each has its credentials, network,
settings and disk. A hub that a credential does not show is not found.
"""

ANOTHER_WORKER = "another worker"
"""The successor in `LOSS` while it is looked for."""

DRAIN_S = 20.0
"""How long a worker that is to end may not answer; reached: it counts as unknown."""


def measure_payload(document: Any) -> int:
    """How many bytes the server counts for it: the client library sends JSON that escapes all but ASCII, so that a
    character may have six times the bytes that it has in UTF-8.
    """
    return len(json.dumps(document, separators=(",", ":")))


def name_worker_queue(prefix: str, worker: str) -> str:
    """The queue that only this worker reads."""
    return f"{prefix}-{worker}"


def name_offer_queue(prefix: str, repository: str = "") -> str:
    """The queue of offers that all workers read; that of a repository's key is read by those that have its clone."""
    return f"{prefix}-offers-{repository}" if repository else f"{prefix}-offers"


def name_task_queue(prefix: str) -> str:
    """The queue of workflows without requirements."""
    return f"{prefix}-tasks"


def name_worker_directory(prefix: str) -> str:
    """The queue of workflows that require something. Workers read it under an identity that says what they can do."""
    return f"{prefix}-workers"


def name_publish_queue(prefix: str) -> str:
    """The queue that the controllers that publish read."""
    return f"{prefix}-publish"


@dataclass
class TaskStart:
    """`lost_after_s`: how long a worker may be silent. `repository`: the key of the repository; empty: a task of an
    earlier version, which goes to any worker. `is_cloned`: whether a worker may have its clone. `requirements`: of a
    worker. `publisher_s`, `most_events`, `renewed_events`: see `PUBLISHER_S` and so on. The rest is set when a long
    history is begun anew. `loss`: with the last worker that was lost, for people; `lost_at`: when, in ISO 8601.
    """

    task_id: str
    url: str
    prefix: str
    lost_after_s: float = 10.0
    worker: str = ""
    epoch: int = 0
    is_created: bool = False
    lost: list[str] = field(default_factory=list)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    repository: str = ""
    is_cloned: bool = True
    requirements: dict[str, str] = field(default_factory=dict)
    publisher_s: float = PUBLISHER_S
    most_events: int = MOST_EVENTS
    loss: str = ""
    lost_at: str = ""
    renewed_events: int = RENEWED_EVENTS
