"""Rows of a table of tasks. Read without pydantic: importing it takes longer than reading hundreds of records."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.models import TASK_ID_PATTERN, TaskStatus
from sandbox.store.home import Home, read_json


@dataclass(frozen=True)
class TaskRow:
    """The fields of a `Task` that a table shows."""

    id: str
    status: TaskStatus
    repo_id: str
    prompt: str
    created_at: datetime


def list_task_rows(home: Home, repo_id: str | None = None) -> tuple[TaskRow, ...]:
    """Tasks without spares, oldest first. A record without a usable row is skipped here; `find_task` reports it."""
    found = (_parse_row(path) for path in (home.repositories / "tasks").glob("task-*.json"))
    lines = [line for line in found if line is not None and _is_shown(line, repo_id)]
    return tuple(sorted(lines, key=lambda line: (line.created_at, line.id)))


def _is_shown(row: TaskRow, repo_id: str | None) -> bool:
    return row.status is not TaskStatus.SPARE and repo_id in {None, row.repo_id}


def _parse_row(path: Path) -> TaskRow | None:
    """Parse only the fields of the row. `find_task` reports damage in other fields."""
    try:
        record = read_json(path) or {}
        texts = [record[name] for name in ("id", "repo_id", "prompt")]
        if not all(isinstance(text, str) for text in texts) or not re.fullmatch(TASK_ID_PATTERN, texts[0]):
            return None
        at = datetime.fromisoformat(record["created_at"])
        status = TaskStatus(record["status"])
        return None if at.tzinfo is None else TaskRow(texts[0], status, texts[1], texts[2], at)
    except (SandboxError, KeyError, ValueError, TypeError):
        return None
