"""What this home knows of the tasks that it placed on a cluster: the record of each, the runs that it asked for, and
which runs and snapshots it saw.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from sandbox.errors import SandboxError, describe_briefly
from sandbox.models import TASK_ID_PATTERN, BackgroundOperation, Task
from sandbox.models.model import Model
from sandbox.private_folders import make_private
from sandbox.store.home import Home, damaged_file_error, read_json, validate_record, write_json
from sandbox.store.short_ids import PLACED, SEEN

_RUN_ID = re.compile(r"run-[0-9a-f-]{8,64}")
_log = logging.getLogger(__name__)
_FoundT = TypeVar("_FoundT")
_SNAPSHOT_ID = re.compile(r"snap-[0-9a-f]{13}-[0-9a-f]{6}")
MOST_NOTED = 200
"""Runs, and snapshots, that are noted of a task. Its worker names them, and each is a file."""


class PlacedRun(Model):
    """Checks that were asked for on a cluster; `run_id` is also the id of the operation."""

    schema_version: int = 1
    run_id: str
    task_id: str
    operation: BackgroundOperation
    check_ids: tuple[str, ...] = ()
    started_at: datetime


def save_placed_task(home: Home, task: Task) -> None:
    """Remember a task as it is now."""
    _write(_folder(home) / f"{task.id}.json", {"schema_version": 1, "task": task.model_dump(mode="json")})


def find_placed_task(home: Home, task_id: str) -> Task | None:
    """A task as this home last saw it; None if it did not place it, or it was closed. Raises: `internal` for a damaged
    record.
    """
    path = _folder(home) / f"{task_id}.json"
    found = read_json(path) if re.fullmatch(TASK_ID_PATTERN, task_id) else None
    return None if found is None else validate_record(Task, found.get("task"), path)


def list_placed_tasks(home: Home) -> tuple[Task, ...]:
    """The tasks that are open, the oldest first. Damaged records are skipped, with a warning in our log."""
    found = _skip_damaged(_folder(home).glob("task-*.json"), lambda path: find_placed_task(home, path.stem))
    return tuple(sorted((task for _, task in found), key=lambda task: task.created_at))


def _skip_damaged(paths: Iterable[Path], read: Callable[[Path], _FoundT | None]) -> Iterator[tuple[Path, _FoundT]]:
    """What is in these files, without those that are gone or damaged: one of them hides no other."""
    for path in paths:
        try:
            found = read(path)
        except SandboxError as error:
            _log.warning("%s, and is skipped: %s", describe_briefly(error), path)
            continue
        if found is not None:
            yield path, found


def forget_placed_task(home: Home, task_id: str) -> None:
    """Delete the record of a task that was closed, and of its runs."""
    (_folder(home) / f"{task_id}.json").unlink(missing_ok=True)
    for path, run in _skip_damaged(_folder(home).glob("run-*.json"), lambda path: find_placed_run(home, path.stem)):
        if run.task_id == task_id:
            path.unlink(missing_ok=True)
    for path, noted in _skip_damaged(_seen_folder(home).glob("*.json"), _read_noted):
        if noted == task_id:
            path.unlink(missing_ok=True)


def note_runs(home: Home, task_id: str, run_ids: Iterable[str]) -> None:
    """Remember the task of these runs, the newest last, so that a caller can ask about one by its id alone. Other texts
    are left out, and beyond `MOST_NOTED` the oldest are forgotten.
    """
    _note(home, task_id, filter(_RUN_ID.fullmatch, run_ids))


def note_snapshots(home: Home, task_id: str, snapshot_ids: Iterable[str]) -> None:
    """Remember the task of these snapshots, as `note_runs`."""
    _note(home, task_id, filter(_SNAPSHOT_ID.fullmatch, snapshot_ids))


def find_task_of_run(home: Home, run_id: str) -> str | None:
    """The task of a run of a worker that was noted; None for any other."""
    return _find_noted(home, run_id) if _RUN_ID.fullmatch(run_id) else None


def find_task_of_snapshot(home: Home, snapshot_id: str) -> str | None:
    """The task of a snapshot on a worker that was noted; None for any other."""
    return _find_noted(home, snapshot_id) if _SNAPSHOT_ID.fullmatch(snapshot_id) else None


def _note(home: Home, task_id: str, names: Iterable[str]) -> None:
    """The first task counts, because another worker may name what is not its own."""
    if not (newest := [*dict.fromkeys(names)][-MOST_NOTED:]):
        return
    folder = _seen_folder(home)
    make_private(folder)
    known = {path.name.partition(".")[0] for path in folder.glob("*.json")}
    if not (new := [name for name in newest if name not in known]):
        return
    for name in new:
        write_json(folder / f"{name}.{task_id}.json", {}, synced=False)
    kind = new[0].partition("-")[0]
    for path in _sort_by_time(folder.glob(f"{kind}-*.{task_id}.json"))[:-MOST_NOTED]:
        path.unlink(missing_ok=True)


def _sort_by_time(paths: Iterable[Path]) -> list[Path]:
    """The oldest first."""
    found = list[tuple[int, Path]]()
    for path in paths:
        with suppress(FileNotFoundError):  # another process forgot it
            found.append((path.stat().st_mtime_ns, path))
    return [path for _, path in sorted(found)]


def _find_noted(home: Home, name: str) -> str | None:
    return next(map(_read_noted, sorted(_seen_folder(home).glob(f"{name}.*json"))), None)


def _read_noted(path: Path) -> str | None:
    """The task that a file is about: its name says it, or in a home of an earlier version its content."""
    _, *task, _ = path.name.split(".")
    if task:
        return task[0]
    found = read_json(path)
    if found is not None and "task_id" not in found:
        raise damaged_file_error(path, "it names no task")
    return None if found is None else str(found["task_id"])


def save_placed_run(home: Home, run: PlacedRun) -> None:
    """Remember a run, before it is asked for."""
    _write(_folder(home) / f"{run.run_id}.json", run.model_dump(mode="json"))


def find_placed_run(home: Home, run_id: str) -> PlacedRun | None:
    """A run that this home asked for; None for any other. Raises: `internal` for a damaged record."""
    path = _folder(home) / f"{run_id}.json"
    found = read_json(path) if _RUN_ID.fullmatch(run_id) else None
    return None if found is None else validate_record(PlacedRun, found, path)


def _folder(home: Home) -> Path:
    return home.repositories / PLACED


def _seen_folder(home: Home) -> Path:
    return _folder(home) / SEEN


def _write(path: Path, document: dict[str, object]) -> None:
    make_private(path.parent)
    write_json(path, document)
