"""Complete the beginning of an id, as git does with commits: `45c2` and `task-45c2` name a task, `-` the last one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_module import LazyModule
from sandbox.models.words import TASK_ID_PATTERN
from sandbox.store.home import Home
from sandbox.store.terminal_task import NAME, recall_task

if TYPE_CHECKING:
    from sandbox.store import background_runs, runs
else:  # read when several runs fit
    background_runs = LazyModule("sandbox.store.background_runs")
    runs = LazyModule("sandbox.store.runs")

SHOWN_CHARACTERS = len("task-") + 8
"""Of a task's id, where people read it. Two tasks have the same ones about once in 60,000 tasks."""

PLACED, SEEN = "placed", "seen"
"""Folders of `sandbox.store.placed_tasks`: of tasks on a cluster, and in that one of their runs and snapshots."""

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
    beginning = name.removeprefix("task-")
    folders = (home.repositories / "tasks", home.repositories / PLACED)
    found = sorted({path.stem for folder in folders for path in folder.glob(f"task-{beginning}*.json")})
    if len(found) > 1:
        raise ambiguous_error(
            f"The ids of {len(found)} tasks begin with '{name}'", found, "Give more characters of the id."
        )
    return found[0] if found else name


def complete_run_id(home: Home, name: str) -> str:
    """The id of the only run, of a check or in the background, that begins or ends so, with `run-`; any other name
    unchanged.

    All runs of one controller begin alike, with its nonce: `LiveController.new_id`.

    Raises: `invalid_input` with the runs, and of what they are, when several fit.
    """
    if not re.fullmatch(r"run-[0-9a-f]{4,31}", name):
        return name
    digits = name.removeprefix("run-")
    placed = home.repositories / PLACED
    folders = (placed, placed / SEEN, home.background_runs, *home.all_logs())
    owners = {path.name.partition(".")[0]: path.parent for f in folders for path in f.glob(f"run-*{digits}*")}
    found = sorted(run for run in owners if run.startswith(name) or run.endswith(digits))
    if len(found) > 1:
        raise ambiguous_error(
            f"The ids of {len(found)} runs begin or end with '{digits}'",
            [_describe_run(home, owners[run], run) for run in found],
            "Give `run-` and the last characters of the id: all runs of one command or session begin alike.",
        )
    return found[0] if found else name


def _describe_run(home: Home, folder: Path, run_id: str) -> str:
    if folder.name in {PLACED, SEEN}:
        return f"{run_id}  of a task of the cluster"
    if folder == home.background_runs:
        request = background_runs.read_background_run(home, run_id)
        return (
            f"{run_id}  in the background" if request is None else f"{run_id}  {request.owner_id}  {request.operation}"
        )
    run = runs.read_run(folder / f"{run_id}.json")
    what = "no result" if run is None else f"{run.check_id} {run.verdict.value}"
    return f"{run_id}  {folder.name}  {what}"


def complete_owner_id(home: Home, name: str) -> str:
    """As both others, for a name that may also be that of a repository, which is never taken for a beginning."""
    if re.fullmatch(_BEGINNING, name) and home.clone(name).exists():
        return name
    return complete_task_id(home, complete_run_id(home, name))


def ambiguous_error(brief: str, found: Sequence[str], hint: str) -> SandboxError:
    """`invalid_input` for a name that fits all of `found`. Pure."""
    more = f"\nand {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
    return SandboxError(ErrorCode.INVALID_INPUT, brief, details="\n".join(found[:_MOST_SHOWN]) + more, hint=hint)
