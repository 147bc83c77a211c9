"""Repositories, tasks and run logs as stored records."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_module import LazyModule
from sandbox.models import TASK_ID_PATTERN, ChosenSettings, Model, Repository, Task, TaskStatus
from sandbox.store.home import Home, parse_json, read_content, read_json, validate_record, write_json

if TYPE_CHECKING:
    import difflib
    import shlex

    from sandbox.models import CheckRun
    from sandbox.store import task_table
else:  # loaded for a name that does not exist
    difflib = LazyModule("difflib")
    shlex = LazyModule("shlex")
    task_table = LazyModule("sandbox.store.task_table")


NOT_IN_USE = frozenset({TaskStatus.CLOSED, TaskStatus.SPARE})
"""The states of tasks that keep no repository from being removed."""


_MOST_SHOWN = 5
"""Known names that an error lists."""


class _Registry(Model):
    repositories: tuple[Repository, ...] = ()


def not_found_error(
    kind: str, requested: str, known: Iterable[str], hint: str, *, in_order: bool = False
) -> SandboxError:
    """`not_found` with the closest known names, or some of them. `in_order`: `known` has the likeliest first."""
    names = list(known) if in_order else sorted(known)
    close = difflib.get_close_matches(requested, names, n=3, cutoff=0.5)
    shown = names if len(names) <= _MOST_SHOWN else [*names[:_MOST_SHOWN], f"and {len(names) - _MOST_SHOWN} more"]
    details = f"Did you mean: {', '.join(close)}?" if close else f"Known: {', '.join(shown) or 'none'}."
    return SandboxError(ErrorCode.NOT_FOUND, f"There is no {kind} '{requested[:100]}'", details=details, hint=hint)


def list_repositories(home: Home) -> tuple[Repository, ...]:
    """All registered repositories, ordered by id."""
    content = read_content(home.registry)
    return () if content is None else _parse_registry(content, home.registry)


@lru_cache(maxsize=2)  # an operation asks for a repository, its settings and its remote, of the same content
def _parse_registry(content: bytes, path: Path) -> tuple[Repository, ...]:
    registry = validate_record(_Registry, parse_json(content, path), path)
    return tuple(sorted(registry.repositories, key=lambda r: r.id))


def find_repository(home: Home, repo_id: str) -> Repository:
    """Raises: `not_found` with near matches."""
    known = {r.id: r for r in list_repositories(home)}
    if repo_id not in known:
        raise not_found_error(
            "repository", repo_id, known, "`sandbox repo list` shows all; `sandbox repo clone URL` adds one."
        )
    return known[repo_id]


def save_repository(home: Home, repository: Repository) -> Repository:
    """Add or replace one registry entry, under the registry's lock. The settings of an existing entry are kept."""
    with home.locked("registry"):
        before = next((r for r in list_repositories(home) if r.id == repository.id), repository)
        return _put_repository(home, repository.model_copy(update={"settings": before.settings}))


def save_settings(home: Home, repo_id: str, settings: ChosenSettings, profile: str, subpath: str) -> Repository:
    """Replace the settings of a repository, and profile and folder that follow. Raises: `not_found`."""
    with home.locked("registry"):
        update = {"settings": settings, "profile": profile, "subpath": subpath}
        return _put_repository(home, find_repository(home, repo_id).model_copy(update=update))


def _put_repository(home: Home, repository: Repository) -> Repository:
    kept = [r for r in list_repositories(home) if r.id != repository.id]
    write_json(home.registry, {"repositories": [r.model_dump(mode="json") for r in (*kept, repository)]})
    return repository


def delete_repository(home: Home, repo_id: str) -> None:
    """Remove a registry entry, if there is one. Raises: `conflict` while the repository has open tasks."""
    with home.locked("registry"):
        require_no_open_task(home, repo_id)
        known = list_repositories(home)
        kept = [r.model_dump(mode="json") for r in known if r.id != repo_id]
        if len(kept) < len(known):
            write_json(home.registry, {"repositories": kept})


def require_no_open_task(home: Home, repo_id: str) -> None:
    """Raises: `conflict` with the ids of the repository's open tasks."""
    still_open = [t.id for t in list_tasks(home, repo_id) if t.status not in NOT_IN_USE]
    if still_open:
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"{repo_id} has {len(still_open)} open task(s)",
            details="\n".join(still_open[:20]),
            hint="Close them first: `sandbox task close TASK`.",
        )


def save_new_task(home: Home, task: Task) -> Task:
    """Write the first record of a task. Raises: `not_found` if its repository was removed meanwhile."""
    with home.locked("registry"):
        find_repository(home, task.repo_id)
        return save_task(home, task)


def save_task(home: Home, task: Task) -> Task:
    """Write a task's record. The caller holds the task's lock."""
    write_json(home.task(task.id), task.model_dump(mode="json"))
    return task


def list_tasks(home: Home, repo_id: str | None = None) -> tuple[Task, ...]:
    """Tasks, oldest first. A damaged record is skipped here; `find_task` reports it."""
    tasks = []
    for path in (home.repositories / "tasks").glob("task-*.json"):
        try:
            task = _load_task(path)
        except SandboxError:
            continue
        if task is not None and repo_id in {None, task.repo_id}:
            tasks.append(task)
    return tuple(sorted(tasks, key=lambda t: (t.created_at, t.id)))


def list_spares(home: Home, repo_id: str | None = None) -> tuple[Task, ...]:
    """Tasks that were made ahead and not taken over yet, oldest first."""
    return tuple(task for task in list_tasks(home, repo_id) if task.status is TaskStatus.SPARE)


def find_task(home: Home, task_id: str, *, allow_closed: bool = False) -> Task:
    """Raises: `not_found` with near matches; `conflict` for a closed or spare task unless allowed: what only reads, or
    closes, allows both.
    """
    task = _load_task(home.task(task_id)) if re.fullmatch(TASK_ID_PATTERN, task_id) else None
    if task is None:
        is_id = re.fullmatch(TASK_ID_PATTERN, task_id)
        short = "" if is_id else " Four characters of an id are enough, and `-` is the task used last in a terminal."
        hint = f"`sandbox task list --all` shows tasks, also closed ones.{short}"
        if not is_id and (task_id in {".", ".."} or "/" in task_id):
            run = f"`sandbox run {shlex.quote(task_id[:100])}`"
            hint = f"A task is meant: `-` is the task used last in a terminal. For a directory or a URL: {run}"
        raise not_found_error("task", task_id, _list_open_first(home), hint, in_order=True)
    if task.status is TaskStatus.CLOSED and not allow_closed:
        raise SandboxError(ErrorCode.CONFLICT, f"{task_id} is closed", hint="Create a new task for further work.")
    if task.status is TaskStatus.SPARE and not allow_closed:
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"{task_id} is a spare, which no work uses before `task create` takes it over",
            hint=f"sandbox task create {task.repo_id}",
        )
    return task


def _list_open_first(home: Home) -> list[str]:
    """Ids of tasks without spares, newest first, and closed ones after the others."""
    rows = reversed(task_table.list_task_rows(home))
    return [row.id for row in sorted(rows, key=lambda row: row.status is TaskStatus.CLOSED)]


def require_task_record(home: Home, task_id: str) -> None:
    """Require that there is such a task, closed or not, without reading it. Raises: as `find_task`."""
    if not re.fullmatch(TASK_ID_PATTERN, task_id) or not home.task(task_id).exists():
        find_task(home, task_id, allow_closed=True)


def save_run(home: Home, owner_id: str, run: CheckRun) -> None:
    """Save a finished run's record beside its logs.

    The record of a clean room is fsynced. A power failure can lose the record of a run on a task's own files, which no
    gate uses.
    """
    write_json(home.logs(owner_id) / f"{run.run_id}.json", run.model_dump(mode="json"), synced=run.clean_room)


def _load_task(path: Path) -> Task | None:
    document = read_json(path)
    return None if document is None else validate_record(Task, document, path)
