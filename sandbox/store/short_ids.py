"""Complete the beginning of an id, as git does with commits: `45c2` and `task-45c2` name a task, `-` the last one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.words import TASK_ID_PATTERN
from sandbox.store.home import Home
from sandbox.store.terminal_task import NAME, recall_task

SHOWN_CHARACTERS = len("task-") + 8
"""Of a task's id, where people read it. Two tasks have the same ones about once in 60,000 tasks."""

PLACED, SEEN = "placed", "seen"
"""Folders of `sandbox.store.placed_tasks`: of tasks on a cluster, and in that one of their runs."""

_BEGINNING = r"[0-9a-f]{4}[0-9a-f-]{0,32}"
_MOST_SHOWN = 5


def complete_task_id(home: Home, name: str) -> str:
    """The id of the only task that begins so, for `-` of the one that this terminal uses; any other name unchanged.

    Raises: `invalid_input` when several tasks begin so; `not_found` for `-` when this terminal uses none.
    """
    if name == NAME:
        return recall_task(home)
    if re.fullmatch(TASK_ID_PATTERN, name) or not re.fullmatch(f"(task-)?{_BEGINNING}", name):
        return name
    files = f"task-{name.removeprefix('task-')}*.json"
    folders = (home.repositories / "tasks", home.repositories / PLACED)
    return _choose("task", name, (path.stem for folder in folders for path in folder.glob(files)))


def complete_run_id(home: Home, name: str) -> str:
    """The id of the only check run that begins so, with `run-`; any other name unchanged.

    Raises: `invalid_input` when several runs begin so.
    """
    if not re.fullmatch(r"run-[0-9a-f]{4,31}", name):
        return name
    placed = home.repositories / PLACED
    folders = (*home.all_logs(), placed, placed / SEEN)
    files = (path for folder in folders for path in folder.glob(f"{name}*"))
    return _choose("run", name, (path.name.partition(".")[0] for path in files))


def complete_owner_id(home: Home, name: str) -> str:
    """As both others, for a name that may also be that of a repository, which is never taken for a beginning."""
    if re.fullmatch(_BEGINNING, name) and home.clone(name).exists():
        return name
    return complete_task_id(home, complete_run_id(home, name))


def _choose(kind: str, name: str, ids: Iterable[str]) -> str:
    found = sorted(set(ids))
    if len(found) > 1:
        brief = f"The ids of {len(found)} {kind}s begin with '{name}'"
        raise ambiguous_error(brief, found, "Give more characters of the id.")
    return found[0] if found else name


def ambiguous_error(brief: str, found: Sequence[str], hint: str) -> SandboxError:
    """`invalid_input` for a name that fits all of `found`. Pure."""
    more = f"\nand {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
    return SandboxError(ErrorCode.INVALID_INPUT, brief, details="\n".join(found[:_MOST_SHOWN]) + more, hint=hint)
