"""Use-cases: the result of a task as one document, and such a document of another host, applied here.

Theory. Who wrote the document ran untrusted code, so it is held against what this host knows: each path against the
path policy, as edits are here, and the whole against the tree that it says it is, built here on the same base commit,
which this home or the repository's remote has to have. From there on it is applied as a result of a task here.
"""

from __future__ import annotations

import base64
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import new_commits, objects
from sandbox.git.blobs import read_blobs
from sandbox.git.contents import content_of
from sandbox.git.diff import blob_sizes, diff_trees
from sandbox.git.entries import GITLINK, RawChange, TreeChange
from sandbox.git.process import Git
from sandbox.git.scratch_objects import scratch_objects
from sandbox.models import ApplyResult, Task
from sandbox.models.exported_changes import MOST_FILES, ExportedChanges, ExportedFile
from sandbox.policy.paths import path_bytes, show_path
from sandbox.policy.writes import parse_writable_path
from sandbox.workbench.controller.disk_admission import Writer
from sandbox.workbench.controller.disk_demands import demand_of_objects
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.clone import fetch_whole_tree
from sandbox.workbench.repositories.updates import update_repository
from sandbox.workbench.tasks.apply import AppliedState, nothing_error, open_result, write_result

MOST_BYTES = 16 * 1024**2
"""Of all contents of a document."""


def export_changes(services: Services, task_id: str, *, uncommitted: bool) -> ExportedChanges:
    """What a task changed since its base: its commits, or with `uncommitted` its working state.

    Raises: `nothing_to_commit` without a change; `quota_exceeded` for more than `MOST_BYTES` or `MOST_FILES`;
    `policy_violation` for a changed submodule; `not_found`; `conflict`.
    """
    with open_result(services, task_id, uncommitted=uncommitted) as result:
        changes = diff_trees(result.git, objects.tree_of(result.git, result.task.base_commit), result.tree)
        if not changes:
            raise nothing_error(result)
        _require_sendable(result.git, changes)
        contents = read_blobs(result.git, [change.new_oid for change in changes if change.new_oid], limit=MOST_BYTES)
        return ExportedChanges(
            base_commit=result.task.base_commit,
            commit=result.commit,
            tree=result.tree,
            files=tuple(_describe(change, next(contents) if change.new_oid else None) for change in changes),
            uncommitted=result.uncommitted,
        )


def apply_exported(
    services: Services, task: Task, exported: ExportedChanges, directory: Path, *, dry_run: bool
) -> ApplyResult:
    """Write the result of a task of another host into a checkout of a person. `task`: what this home knows of it.

    Raises: as `apply_task`; `unsafe_path` for a path that the policy does not let an edit write; `not_found` for a base
    that the repository's remote does not have; `internal` for a document with another tree than it says.
    """
    changes = [_read(services, task.repo_id, file, len(exported.base_commit)) for file in exported.files]
    git = _find_base(services, task.repo_id, exported.base_commit)
    with services.disk.admit(Writer.LOOK, demand_of_objects(changes)), scratch_objects(git) as scratch:
        if new_commits.build_tree(scratch, exported.base_commit, changes) != exported.tree:
            raise SandboxError(
                ErrorCode.INTERNAL,
                f"The result of {task.id} is not the tree that its host says",
                details=f"it says {exported.tree}",
                hint="No file was written. Ask again; if it stays, look at the worker that has the task.",
            )
        known = task.model_copy(update={"base_commit": exported.base_commit})
        result = AppliedState(known, scratch, exported.tree, exported.commit, exported.uncommitted)
        return write_result(services, result, directory, dry_run=dry_run)


def _require_sendable(git: Git, changes: list[RawChange]) -> None:
    for change in changes:
        if GITLINK in {change.old_mode, change.new_mode}:
            raise SandboxError(
                ErrorCode.POLICY_VIOLATION,
                f"{show_path(change.path)[:200]} is a submodule, which is not applied through a cluster",
                hint="Push the task's branch, and fetch it.",
            )
    size = sum(blob_sizes(git, [change.new_oid for change in changes if change.new_oid]).values())
    if size > MOST_BYTES or len(changes) > MOST_FILES:
        raise SandboxError(
            ErrorCode.QUOTA_EXCEEDED,
            f"The result has {len(changes)} files with {size} bytes; at most {MOST_FILES} with {MOST_BYTES} pass "
            "through a cluster",
            hint="Push the task's branch, and fetch it.",
        )


def _describe(change: RawChange, content: bytes | None) -> ExportedFile:
    path = show_path(change.path)
    if content is None:
        return ExportedFile(path=path, content=None)
    return ExportedFile.model_validate({"path": path, "content": base64.b64encode(content), "mode": change.new_mode})


def _read(services: Services, repo_id: str, file: ExportedFile, oid_length: int) -> TreeChange:
    path = path_bytes(parse_writable_path(file.path, services.policies.paths, repo_id))
    return TreeChange(path, file.mode, None if file.content is None else content_of(file.content, oid_length))


def _find_base(services: Services, repo_id: str, base_commit: str) -> Git:
    """git on the cache clone with the base of a task, which may be newer than the clone."""
    repository, git = services.repositories.open(repo_id)
    if objects.peel(git, base_commit, "commit") is None:
        update_repository(services, repo_id)
    if objects.peel(git, base_commit, "commit") is None:
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"The remote of {repo_id} does not have the task's base {base_commit[:12]}",
            hint="It may have been rewritten: `sandbox task sync TASK`.",
        )
    fetch_whole_tree(services, repository, git, base_commit)
    return git
