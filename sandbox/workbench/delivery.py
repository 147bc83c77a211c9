"""Use-cases that send a task's work to its remote."""

from __future__ import annotations

from datetime import UTC, datetime

from sandbox.errors import ErrorCode, SandboxError
from sandbox.gate import Step
from sandbox.git import objects
from sandbox.git.process import Git
from sandbox.git.transport import push as push_commit
from sandbox.models import PushResult, TaskStatus
from sandbox.store.records import save_task
from sandbox.workbench.gates import require_open
from sandbox.workbench.parts import Parts
from sandbox.workbench.repositories import cache_of
from sandbox.workbench.tasks import editing


def push(parts: Parts, task_id: str) -> PushResult:
    """Send the task's commit to its branch on the remote and verify it arrived."""
    with editing(parts, task_id) as task:
        repository, git = cache_of(parts, task.repo_id)
        if task.head_commit == task.base_commit:
            raise SandboxError(ErrorCode.NOTHING_TO_COMMIT, "The task has no commit to push", hint="Commit first.")
        require_open(parts, task, Step.PUSH)
        marker = f"refs/sandbox/{task.id}/pushed"
        before = objects.resolve_ref(git, marker)
        remote = parts.remote(repository.remote_url)
        parts.authenticated(remote, lambda access: push_commit(git, access, task.head_commit, task.branch, before))
        objects.move_ref(git, marker, task.head_commit, before or "0" * len(task.head_commit))
        update: dict[str, object] = {"pushed_at": datetime.now(UTC)}
        if task.status in {TaskStatus.WORKING, TaskStatus.COMMITTED}:
            update["status"] = TaskStatus.PUSHED
        save_task(parts.home, task.model_copy(update=update))
        return PushResult(branch=task.branch, commit=task.head_commit, forced=_forced(git, before, task.head_commit))


def _forced(git: Git, before: str | None, after: str) -> bool:
    return before is not None and git.attempt("merge-base", "--is-ancestor", before, after).code != 0
