"""Use-case on what checks leave: a new worktree with the task's uncommitted changes, and without all the rest.

Nothing is deleted piece by piece: what guests leave may be too many names, too deep, or of other owners, and a disk
limit counts all of it. The new worktree is made in a room beside and takes the place of the old one by renames.
"""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import objects
from sandbox.git.process import Git
from sandbox.models import Cleaned, Snapshot, Task
from sandbox.policy.paths import check_path, path_bytes
from sandbox.workbench.controller.services import Parts
from sandbox.workbench.repositories.clone import cache_of, whole_tree
from sandbox.workbench.tasks.guest_cleanup import end_guest
from sandbox.workbench.tasks.lifecycle import editing, looking
from sandbox.workbench.tasks.snapshots import BEFORE_CLEAN, keep, newest_on_head
from sandbox.workbench.tasks.status import status_of
from sandbox.workbench.tasks.worktrees import has_worktree, renew, site_of


def clean(parts: Parts, task_id: str, without: Sequence[str], *, discard: bool) -> Cleaned:
    """Take away what no commit would hold. Changes stay, and are kept as a snapshot first; with `discard` they go too.

    `without`: new files or directories that are neither looked at nor kept, as they are too large for that. A task
    whose worktree is gone gets one of its newest snapshot, or of its last commit when that is newer.
    Raises: `invalid_input` for `without` beside `discard`, `quota_exceeded` when the changes cannot be kept,
    `engine_unavailable` when there may be a container.
    """
    if without and discard:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "Nothing is left out where all changes go",
            hint="Give either --without or --discard.",
        )
    with editing(parts, task_id) as task:
        repository, git = cache_of(parts, task.repo_id)
        previous = None if discard else _kept(parts, git, task, _left_out(git, task, without))
        tree = previous.tree if previous else objects.tree_of(git, task.head_commit)
        below = whole_tree(parts, repository, git, task.base_commit)
        end_guest(parts, task_id, for_good=False)
        renew(parts, git, task, (below, tree))
        with looking(parts, task) as opened:
            return Cleaned(**dict(status_of(opened)), tree=tree, previous=previous)


def _left_out(git: Git, task: Task, without: Sequence[str]) -> tuple[str, ...]:
    """Raises: `unsafe_path`; `invalid_input` for a file that the last commit has, which no rule leaves out."""
    tree = objects.tree_of(git, task.head_commit)
    paths = tuple(check_path(path.rstrip("/")) for path in without)
    for path in paths:
        if objects.blob_at(git, tree, path_bytes(path)) is not None:
            raise SandboxError(
                ErrorCode.INVALID_INPUT,
                f"{path} is no new file: the last commit has it",
                hint="`sandbox task clean TASK --discard` goes back to the last commit, and loses all changes.",
            )
    return paths


def _kept(parts: Parts, git: Git, task: Task, without: tuple[str, ...]) -> Snapshot | None:
    if not has_worktree(site_of(parts, task.repo_id, task.id)):
        return newest_on_head(git, task)
    try:
        with looking(parts, task, without) as opened:
            return keep(parts, opened, BEFORE_CLEAN)
    except SandboxError as error:
        if error.code is ErrorCode.QUOTA_EXCEEDED:
            error.hint = (
                "--without PATH leaves a new file or directory out; --discard goes back to the last commit, "
                "and loses all uncommitted changes."
            )
        raise
