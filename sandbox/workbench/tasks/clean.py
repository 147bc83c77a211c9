"""Use-case: remove what checks left. The task gets a new worktree with only its uncommitted changes.

The files are not deleted one by one: guests may leave too many files, too deep directories, or files of other owners,
and a disk limit counts all of them. The new worktree is created in a room beside and replaces the old one by renames.
"""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import objects
from sandbox.git.process import Git
from sandbox.models import CleanResult, Snapshot, Task
from sandbox.policy.paths import parse_repo_path, path_bytes
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.clone import fetch_whole_tree
from sandbox.workbench.tasks.guest_cleanup import remove_guest
from sandbox.workbench.tasks.left_out_paths import require_approved_clean
from sandbox.workbench.tasks.lifecycle import compare_task, lock_task
from sandbox.workbench.tasks.pending_moves import end_move
from sandbox.workbench.tasks.snapshots import BEFORE_CLEAN, find_newest_on_head, keep_snapshot, note_latest_state
from sandbox.workbench.tasks.status import build_status
from sandbox.workbench.tasks.tree_tasks import lay_out_files
from sandbox.workbench.tasks.worktrees import has_worktree, locate_worktree, replace_worktree
from sandbox.workspaces.changes import Changes, describe_left_out

_NESTED_HINT = (
    "--without PATH deletes a new file or directory. If you remove the nested `.git`, the files are changes, which a "
    "clean keeps."
)
_LEAVE_OUT_HINT = (
    "--without PATH leaves out a new file or directory; --discard restores the last commit and deletes all uncommitted "
    "changes."
)


def clean_task(
    services: Services, task_id: str, without: Sequence[str], *, discard: bool, expected_commit: str | None = None
) -> CleanResult:
    """Remove all files that a commit would not hold. Changes stay, after a snapshot of them; `discard` removes them.

    `without`: new files or directories that are neither read nor kept, because they are too large. A task without
    a worktree gets one from its newest snapshot, or from its last commit if that is newer. `expected_commit`: the last
    commit that was approved, or the whole state of `find_clean_state`.
    Raises: `conflict` for another commit or content, `invalid_input` for `without` with `discard`, `quota_exceeded`
    when the changes cannot be kept, `dirty_workspace` for new files beside or below a nested `.git`, which no snapshot
    can hold, `engine_unavailable` when the task may have a container.
    """
    if without and discard:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "--without cannot be combined with --discard, which removes all changes",
            hint="Give either --without or --discard.",
        )
    with lock_task(services, task_id, discards=discard) as task:
        require_approved_clean(services, task, without, expected_commit)
        task = lay_out_files(services, task)
        repository, git = services.repositories.open(task.repo_id)
        previous = None if discard else _keep_changes(services, git, task, _require_new_paths(git, task, without))
        if discard:
            note_latest_state(git, task, task.head_commit)  # after a kill the next clean makes this state, too
        tree = previous.tree if previous else objects.tree_of(git, task.head_commit)
        below = fetch_whole_tree(services, repository, git, task.base_commit)
        remove_guest(services, task_id, task_ends=False)
        replace_worktree(services, git, task, (below, tree))
        if services.home.move_note(task_id).exists():
            end_move(services, task)
        with compare_task(services, task) as opened:
            return CleanResult(**dict(build_status(opened)), tree=tree, previous=previous)


def _require_new_paths(git: Git, task: Task, without: Sequence[str]) -> tuple[str, ...]:
    """Raises: `unsafe_path`; `invalid_input` for a file of the last commit, which cannot be ignored."""
    tree = objects.tree_of(git, task.head_commit)
    paths = tuple(parse_repo_path(path.rstrip("/")) for path in without)
    for path in paths:
        if objects.find_blob(git, tree, path_bytes(path)) is not None:
            raise SandboxError(
                ErrorCode.INVALID_INPUT,
                f"{path} is not a new file: it is in the last commit",
                hint="`sandbox task clean TASK --discard` restores the last commit and deletes all changes.",
            )
    return paths


def _keep_changes(services: Services, git: Git, task: Task, without: tuple[str, ...]) -> Snapshot | None:
    if not has_worktree(locate_worktree(services.home, services.policies, task.repo_id, task.id)):
        return find_newest_on_head(git, task)
    try:
        with compare_task(services, task, without, reads_all=True) as opened:
            _require_no_nested_files(task, opened.changes)
            return keep_snapshot(services, opened, BEFORE_CLEAN)
    except SandboxError as error:
        if error.code is ErrorCode.QUOTA_EXCEEDED:
            raise error.with_hint(_LEAVE_OUT_HINT) from error
        raise


def _require_no_nested_files(task: Task, changes: Changes) -> None:
    if changes.nested_files:
        raise SandboxError(
            ErrorCode.DIRTY_WORKSPACE,
            f"{task.id} has {changes.nested_files} file(s) beside or below a nested `.git`, which no snapshot can hold",
            details=describe_left_out(changes),
            hint=_NESTED_HINT,
        )
