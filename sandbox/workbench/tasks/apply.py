"""Use-case: bring a task's result into a person's own checkout, without a remote. git does not open that directory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import WorktreeFiles
from sandbox.git import new_commits, objects
from sandbox.git.entries import SYMLINK
from sandbox.git.process import Git
from sandbox.git.scratch_objects import scratch_objects
from sandbox.models import AppliedFile, ApplyResult, ChangeKind, Task
from sandbox.policy.paths import RepoPath
from sandbox.policy.writes import find_flags
from sandbox.store.records import find_task
from sandbox.workbench.controller.disk_admission import Writer
from sandbox.workbench.controller.disk_demands import demand_of_objects
from sandbox.workbench.controller.services import Services
from sandbox.workbench.tasks.lifecycle import compare_task, lock_task
from sandbox.workspaces.person_directory import PlannedWrite, plan_writes, write_planned
from sandbox.workspaces.restore import RestoreStep


@dataclass(frozen=True)
class AppliedState:
    """What is applied: the task's changes from its base commit to `tree`, read by `git`. `commit`: None for the working
    state. `uncommitted`: how many changes are left out.
    """

    task: Task
    git: Git
    tree: str
    commit: str | None
    uncommitted: int = 0


def apply_task(services: Services, task_id: str, directory: Path, *, uncommitted: bool, dry_run: bool) -> ApplyResult:
    """Write what the task changed since its base into a checkout of a person: all files or none.

    The committed state, also of a closed task; with `uncommitted` the working state. Raises: `conflict`, with `paths`
    in its data, where the directory has neither the state of the base nor of the result; `nothing_to_commit` if there
    is no result; `invalid_input` for a directory that is no checkout; `unsafe_path`.
    """
    with open_result(services, task_id, uncommitted=uncommitted) as result:
        return write_result(services, result, directory, dry_run=dry_run)


def open_result(services: Services, task_id: str, *, uncommitted: bool) -> AbstractContextManager[AppliedState]:
    """The committed state of a task, or with `uncommitted` the working state. Raises: `not_found`, `conflict`."""
    return _open_working_state(services, task_id) if uncommitted else _open_committed(services, task_id)


def write_result(services: Services, result: AppliedState, directory: Path, *, dry_run: bool) -> ApplyResult:
    """Write a result into a checkout of a person. Raises: as `apply_task`."""
    with _open_checkout(services, directory) as (root, files):
        base = objects.tree_of(result.git, result.task.base_commit)
        planned = plan_writes(result.git, files, base, result.tree)
        if not planned:
            raise nothing_error(result)
        if not dry_run:
            write_planned(result.git, files, planned, _choose_owner(root))
        return ApplyResult(
            task_id=result.task.id,
            directory=root,
            dry_run=dry_run,
            base_commit=result.task.base_commit,
            commit=result.commit,
            tree=result.tree,
            files=tuple(_describe(services, result.task, write) for write in planned),
            uncommitted=result.uncommitted,
        )


@contextmanager
def _open_committed(services: Services, task_id: str) -> Iterator[AppliedState]:
    task = find_task(services.home, task_id, allow_closed=True)
    _, git = services.repositories.open(task.repo_id)
    left_out = 0
    with suppress(SandboxError), compare_task(services, task) as opened:  # a closed task may have no worktree
        left_out = len(opened.changes.tree)
    yield AppliedState(task, git, objects.tree_of(git, task.head_commit), task.head_commit, left_out)


@contextmanager
def _open_working_state(services: Services, task_id: str) -> Iterator[AppliedState]:
    with (
        lock_task(services, task_id) as task,
        compare_task(services, task) as opened,
        services.disk.admit(Writer.LOOK, demand_of_objects(opened.changes.tree)),
        scratch_objects(opened.git) as git,
    ):
        yield AppliedState(task, git, new_commits.build_tree(git, task.head_commit, opened.changes.tree), None)


@contextmanager
def _open_checkout(services: Services, directory: Path) -> Iterator[tuple[Path, WorktreeFiles]]:
    """The directory's real path, and its files. Raises: `invalid_input` unless it is the top of a person's checkout."""
    root = directory.resolve()
    if not root.is_dir():
        raise SandboxError(ErrorCode.INVALID_INPUT, f"{directory} is not a directory", hint="Name your checkout.")
    if root.is_relative_to(services.home.root.resolve()):
        raise SandboxError(
            ErrorCode.INVALID_INPUT, f"{directory} belongs to the sandbox", hint="Name a checkout of your own."
        )
    with WorktreeFiles(root, umask=_read_umask()) as files:
        if files.kind(RepoPath(".git")) is None:
            raise SandboxError(
                ErrorCode.INVALID_INPUT,
                f"{directory} is not the top directory of a git checkout",
                details="it has no .git",
                hint="Name the directory that holds .git.",
            )
        yield root, files


def _read_umask() -> int:
    """The umask of this process: other ways to read it change it for all threads. Source: proc(5)."""
    found = re.search(r"^Umask:\s*([0-7]+)$", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    return int(found[1], 8) if found else 0o077


def _choose_owner(root: Path) -> tuple[int, int] | None:
    """Root writes files for the owner of the directory."""
    info = root.stat()
    return (info.st_uid, info.st_gid) if os.geteuid() == 0 else None


def _describe(services: Services, task: Task, write: PlannedWrite) -> AppliedFile:
    flags = find_flags(write.step.path, services.policies.paths, task.repo_id)
    return AppliedFile(path=write.step.path, kind=_kind(write.step), flags=flags, already=write.already)


def _kind(step: RestoreStep) -> ChangeKind:
    if not step.before.oid:
        return ChangeKind.ADDED
    if not step.after.oid:
        return ChangeKind.DELETED
    return ChangeKind.TYPE_CHANGED if SYMLINK in {step.before.mode, step.after.mode} else ChangeKind.MODIFIED


def nothing_error(result: AppliedState) -> SandboxError:
    """The result has no change."""
    hint = "--uncommitted applies its working state." if result.uncommitted else "Edit a file, or commit first."
    return SandboxError(
        ErrorCode.NOTHING_TO_COMMIT,
        f"{result.task.id} has no {'committed ' if result.commit else ''}change to apply",
        details=f"it has {result.uncommitted} uncommitted change(s)" if result.uncommitted else "",
        hint=hint,
    )
