"""What a killed sync or checkout leaves: the files of two commits, and a branch or record that does not say so.

Theory. A move changes the files, then the branch, then the record. A note beside the record says from where to where
before the first file is changed, and goes when the record is written. The next process to lock the task finds the
note: if the branch was moved, all files were, and the record follows; else the files are changed back. So the changes
of others never pass for those of the task (docs/adr/0201).

The tree afterwards is on the ref `refs/sandbox/TASK/moving` as long as there is a note: a repair of the clone copies
only what refs lead to. A note that cannot be used stops the task's operations, but none that discards its files, and no
close. `gc` sets it aside.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import new_commits, objects, refs
from sandbox.git.process import Git
from sandbox.models import Task, TaskStatus
from sandbox.models.ids import ObjectId
from sandbox.models.model import Model
from sandbox.store.home import read_json, validate_record, write_json
from sandbox.store.records import find_task, save_task
from sandbox.workbench.controller.commit_identity import SANDBOX_IDENTITY
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


class UnusableMove(SandboxError):
    """A note of which nothing can be done: `dirty_workspace`. The files may be those of two commits."""

    @classmethod
    def of(cls, task_id: str, why: str) -> Self:
        """With what a person can do."""
        return cls(
            ErrorCode.DIRTY_WORKSPACE,
            f"{task_id} may have files of two commits: its sync or checkout was killed, and cannot be finished",
            details=why,
            hint=f"`sandbox task clean {task_id} --discard` restores the last commit; `sandbox gc` keeps the files as "
            f"they are. Changes from before are a snapshot: `sandbox task snapshots {task_id}`.",
        )


def begin_move(services: Services, git: Git, task: Task, trees: tuple[str, str], moved: Task) -> None:
    """Note a move before its first file is changed. The caller holds the task's lock, and that of `store_objects`.
    Raises: `quota_exceeded`.
    """
    before, after = trees
    identity = SANDBOX_IDENTITY.as_environment(datetime.now(UTC))
    kept = new_commits.commit_tree(git, after, task.head_commit, "Files of a sync or checkout\n", identity)
    ref = _ref(task.id)  # a killed `end_move` may have left it
    refs.run_update_ref(git, [ref], "--no-deref", ref, kept).raise_for_status("update-ref")
    move = PendingMove(before=before, after=after, head=task.head_commit, base=task.base_commit, moved=moved)
    write_json(services.home.move_note(task.id), move.model_dump(mode="json"))


def end_move(services: Services, task: Task) -> None:
    """The record of the move is written, or its files are changed back, discarded or left as they are."""
    services.home.move_note(task.id).unlink(missing_ok=True)
    try:
        drop_kept_files(services.repositories.open(task.repo_id)[1], task.id)
    except SandboxError as error:
        _log.info("the ref of the move of %s was kept: %s", task.id, error.brief)  # until `gc`


def drop_kept_files(git: Git, task_id: str) -> None:
    """Delete the ref of a move that has no note any more."""
    if (kept := refs.resolve_ref(git, _ref(task_id))) is not None:
        refs.delete_ref(git, _ref(task_id), kept)


def _ref(task_id: str) -> str:
    return f"refs/sandbox/{task_id}/moving"


def finish_move(services: Services, task_id: str) -> str | None:
    """Complete a move that was killed, or change its files back. Returns what was done; None without one. The caller
    holds the task's lock. Raises: `UnusableMove`, `quota_exceeded`, and other errors of writing; a later call goes on.
    """
    note = services.home.move_note(task_id)
    if not note.exists():
        return None
    task = find_task(services.home, task_id, allow_closed=True)
    done = _finish(services, task, _read(note, task_id))
    end_move(services, task)
    _log.warning("%s: %s", task_id, done)
    return done


def try_to_finish_move(services: Services, task_id: str) -> None:
    """As `finish_move`, for an operation that needs no files of the task, and then calls `end_move`: an error does not
    stop it, and the note stays until then.
    """
    try:
        finish_move(services, task_id)
    except SandboxError as error:
        _log.warning("the move of %s was not finished: %s: %s", task_id, error.brief, error.details)


def finish_or_set_aside(services: Services, task_id: str) -> str | None:
    """As `finish_move`; a note that cannot be used is set aside: then the files as they are count as the task's.

    Raises: also `dirty_workspace`, which says so.
    """
    try:
        return finish_move(services, task_id)
    except UnusableMove as error:
        aside = services.home.unused_move_note(task_id)
        services.home.move_note(task_id).replace(aside)
        end_move(services, find_task(services.home, task_id, allow_closed=True))
        why = f"its note is now {aside.name}, and its files count as they are: {error.details}"
        raise error.with_details(why) from error


def _read(note: Path, task_id: str) -> PendingMove:
    try:
        return validate_record(PendingMove, read_json(note) or {}, note)
    except SandboxError as error:
        if error.code is not ErrorCode.INTERNAL:
            raise
        raise UnusableMove.of(task_id, error.details) from error


def _finish(services: Services, task: Task, move: PendingMove) -> str:
    if task.status is TaskStatus.CLOSED or (task.head_commit, task.base_commit) != (move.head, move.base):
        return "its move was over"
    git = services.repositories.open(task.repo_id)[1]
    if refs.resolve_ref(git, f"refs/heads/{task.branch}") == move.moved.head_commit != task.head_commit:
        save_task(services.home, move.moved)
        return f"its move to {move.moved.head_commit[:12]} was completed"
    if not has_worktree(locate_worktree(services.home, services.policies, task.repo_id, task.id)):
        return "its files are gone"  # they are made again as they were before
    if lost := [tree for tree in (move.before, move.after) if objects.peel(git, tree, "tree") is None]:
        raise UnusableMove.of(task.id, f"the cache clone no longer has {', '.join(lost)}")
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
