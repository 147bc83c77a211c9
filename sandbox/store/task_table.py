"""One line of each task, for a table: read without pydantic, which takes longer to load than hundreds of records."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.models import TASK_ID_PATTERN, TaskStatus
from sandbox.store.home import Home, read_json


@dataclass(frozen=True)
class TaskLine:
    """What a table shows of a task; see `Task`."""

    id: str
    status: TaskStatus
    repo_id: str
    prompt: str
    created_at: datetime


def task_lines(home: Home, repo_id: str | None = None) -> tuple[TaskLine, ...]:
    """Tasks, oldest first; a record whose line cannot be told is skipped here and reported by `find_task`."""
    found = (_line(path) for path in (home.repositories / "tasks").glob("task-*.json"))
    lines = [line for line in found if line is not None and repo_id in {None, line.repo_id}]
    return tuple(sorted(lines, key=lambda line: (line.created_at, line.id)))


def _line(path: Path) -> TaskLine | None:
    """Only these fields are looked at: of another one that is damaged, `find_task` tells."""
    try:
        record = read_json(path) or {}
        texts = [record[name] for name in ("id", "repo_id", "prompt")]
        if not all(isinstance(text, str) for text in texts) or not re.fullmatch(TASK_ID_PATTERN, texts[0]):
            return None
        at = datetime.fromisoformat(record["created_at"])
        status = TaskStatus(record["status"])
        return None if at.tzinfo is None else TaskLine(texts[0], status, texts[1], texts[2], at)
    except (SandboxError, KeyError, ValueError, TypeError):
        return None
