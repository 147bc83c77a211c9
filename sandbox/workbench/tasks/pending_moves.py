"""What a killed sync or checkout leaves: the files of two commits, and a branch or record that does not say so.

Theory. A move changes the files, then the branch, then the record. A note beside the record says from where to where
before the first file is changed, and goes when the record is written. The next process to lock the task finds the
note: if the branch was moved, all files were, and the record follows; else the files are changed back. So the changes
of others never pass for those of the task (docs/adr/0201).
"""

from __future__ import annotations

import logging
from pathlib import Path

from sandbox.git import refs
from sandbox.git.process import Git
from sandbox.models import Task, TaskStatus
from sandbox.models.ids import ObjectId
from sandbox.models.model import Model
from sandbox.store.home import Home, read_json, validate_record, write_json
from sandbox.store.records import find_task, save_task
from sandbox.workbench.controller.disk_admission import Writer
from sandbox.workbench.controller.disk_demands import demand_of_difference
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.lfs import find_large_files
from sandbox.workbench.tasks.worktrees import has_worktree, locate_worktree, open_files
from sandbox.workspaces.restore import RestoreSource, undo_restore

_log = logging.getLogger(__name__)


class PendingMove(Model):
    """A move that was begun. `before`, `after`: trees of the files. `head`, `base`: of the task before it. `moved`: its
    record afterwards.
    """

    before: ObjectId
    after: ObjectId
    head: ObjectId
    base: ObjectId
    moved: Task


def begin_move(home: Home, task: Task, trees: tuple[str, str], moved: Task) -> None:
    """Note a move before its first file is changed. The caller holds the task's lock. Raises: `quota_exceeded`."""
    before, after = trees
    move = PendingMove(before=before, after=after, head=task.head_commit, base=task.base_commit, moved=moved)
    write_json(home.move_note(task.id), move.model_dump(mode="json"))


def end_move(home: Home, task_id: str) -> None:
    """The record of the move is written, or its files are changed back."""
    home.move_note(task_id).unlink(missing_ok=True)


def finish_move(services: Services, task_id: str) -> str | None:
    """Complete a move that was killed, or change its files back. Returns what was done; None without one. The caller
    holds the task's lock. Raises: `quota_exceeded`, and other errors of writing; a later call goes on.
    """
    note = services.home.move_note(task_id)
    if not note.exists():
        return None
    done = _finish(services, find_task(services.home, task_id, allow_closed=True), _read(note))
    note.unlink(missing_ok=True)
    _log.warning("%s: %s", task_id, done)
    return done


def _read(note: Path) -> PendingMove:
    return validate_record(PendingMove, read_json(note) or {}, note)


def _finish(services: Services, task: Task, move: PendingMove) -> str:
    if task.status is TaskStatus.CLOSED or (task.head_commit, task.base_commit) != (move.head, move.base):
        return "its move was over"
    git = services.repositories.open(task.repo_id)[1]
    if refs.resolve_ref(git, f"refs/heads/{task.branch}") == move.moved.head_commit != task.head_commit:
        save_task(services.home, move.moved)
        return f"its move to {move.moved.head_commit[:12]} was completed"
    if not has_worktree(locate_worktree(services.home, services.policies, task.repo_id, task.id)):
        return "its files are gone"  # they are made again as they were before
    kept = _change_back(services, git, task, move)
    done = f"its files were changed back to {task.head_commit[:12]}, with its uncommitted changes"
    return f"{done}, but for what was changed since: {', '.join(kept)[:200]}" if kept else done


def _change_back(services: Services, git: Git, task: Task, move: PendingMove) -> tuple[str, ...]:
    trees = (move.after, move.before)
    source = RestoreSource(git, find_large_files(services, task.repo_id, git, trees))
    owner = locate_worktree(services.home, services.policies, task.repo_id, task.id).owner
    with (
        services.disk.admit(Writer.RESTORE, demand_of_difference(git, *trees, source.large)),
        open_files(services.home, services.policies, task) as files,
    ):
        return undo_restore(source, files, move.before, move.after, owner)
