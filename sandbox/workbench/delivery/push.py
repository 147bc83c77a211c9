"""Use-cases that send a task's work to its remote."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

from sandbox.errors import ErrorCode, SandboxError
from sandbox.gate import Step
from sandbox.git import objects
from sandbox.git.process import Git
from sandbox.git.push.reasons import PushRejected
from sandbox.git.push.send import push as push_commit
from sandbox.git.transport import Access, remote_branch
from sandbox.models import Delivery, PullState, PushResult, Repository, Task, TaskStatus
from sandbox.remotes import Remote
from sandbox.store.records import find_repository, save_task
from sandbox.workbench.checks.gate import require_open, require_state, state_of
from sandbox.workbench.controller.services import Parts
from sandbox.workbench.delivery.forge import forge_of, has_forge, project_of
from sandbox.workbench.repositories.clone import cache_of
from sandbox.workbench.tasks.approved_state import require_approved
from sandbox.workbench.tasks.lifecycle import editing

Tell = Callable[[Delivery], None]
"""Hears what is about to leave this host, and what the gate says of it: also of what is refused or fails."""


def push(parts: Parts, task_id: str, expected_commit: str | None = None, tell: Tell | None = None) -> PushResult:
    """Send the task's commit to its branch on the remote and verify it arrived. `expected_commit`: the approved one.

    Raises: `conflict`, `policy_violation`, `nothing_to_commit` and `gate_closed` before the remote hears of anything.
    """
    return push_and_hear(parts, task_id, expected_commit, tell)[0]


def push_and_hear(
    parts: Parts,
    task_id: str,
    expected_commit: str | None,
    tell: Tell | None = None,
    *,
    for_pull_request: bool = False,
) -> tuple[PushResult, str | None]:
    """As `push`; with the page on the remote's host where its server says that a pull request can be opened.

    `for_pull_request`: it may have one that its record does not know of.
    """
    with editing(parts, task_id) as task:
        require_approved("commit", task.head_commit, expected_commit)
        repository, git = cache_of(parts, task.repo_id)
        remote = parts.remote(repository.remote_url)
        require_own_branch(task_id, task, repository)
        require_commit(task)
        _require_gate(parts, task, tell)
        if task.pr_url is not None or (for_pull_request and task.pushed_at is not None):
            _require_open_if_ready(parts, task, remote)
        before, page = _sent(parts, remote, git, task)
        _record(parts, task)
        forced = _forced(git, before, task.head_commit)
        return PushResult(branch=task.branch, commit=task.head_commit, forced=forced), page


def _require_gate(parts: Parts, task: Task, tell: Tell | None) -> None:
    """Raises: as the gate."""
    if tell is None:
        require_open(parts, task, Step.PUSH)
        return
    sent = delivery_of(parts, task, Step.PUSH)
    tell(sent)
    require_state(parts, task, sent.gate)


def delivery_of(parts: Parts, task: Task, step: Step) -> Delivery:
    """What a step would send, and what the gate says of it. Raises: as `gates.state_of`."""
    remote = find_repository(parts.home, task.repo_id).remote_url
    return Delivery(remote=remote, branch=task.branch, commit=task.head_commit, gate=state_of(parts, task, step))


def _sent(parts: Parts, remote: Remote, git: Git, task: Task) -> tuple[str | None, str | None]:
    """As `_send`, with the credentials that there are."""
    try:
        return parts.authenticated(remote, lambda access: _send(git, access, task))
    except PushRejected as error:
        error.hint = error.hint.replace("TASK", task.id)
        raise


def _record(parts: Parts, task: Task) -> None:
    update: dict[str, object] = {"pushed_at": datetime.now(UTC)}
    if task.status in {TaskStatus.WORKING, TaskStatus.COMMITTED}:
        update["status"] = TaskStatus.PUSHED
    save_task(parts.home, task.model_copy(update=update))


def _require_open_if_ready(parts: Parts, task: Task, remote: Remote) -> None:
    """A push moves a pull request that is ready along, whoever made it so: then the gate is that of one that is ready.

    The forge is asked only when the tree is not verified. Raises: `gate_closed`, and as a forge.
    """
    try:
        require_open(parts, task, Step.READY_PR)
    except SandboxError:
        if has_forge(remote) and _is_ready(parts, task, remote):
            raise


def _is_ready(parts: Parts, task: Task, remote: Remote) -> bool:
    with forge_of(remote, project_of(parts, remote)) as forge:
        found = forge.find(task.branch)
    return found is not None and found.pull.state is PullState.OPEN and not found.pull.draft


def require_commit(task: Task) -> None:
    """Raises: `nothing_to_commit` while the task's branch is at its base."""
    if task.head_commit == task.base_commit:
        raise SandboxError(ErrorCode.NOTHING_TO_COMMIT, "The task has no commit to push", hint="Commit first.")


def require_own_branch(task_id: str, task: Task, repository: Repository) -> None:
    """Whatever a record says, a push goes to a branch that was made for this very task, and to no other.

    Raises: `policy_violation`, also when the remote calls that branch its default or the task started from it.
    """
    branch = task.branch
    ours = task.id == task_id and re.fullmatch(rf"space-agent/{re.escape(task_id)}-[a-z0-9-]+", branch) is not None
    theirs = branch in {repository.default_branch, task.base_branch.removeprefix("refs/heads/")}
    if not ours or theirs:
        what = "the repository's default branch or the task's base" if theirs else "none of this task's own"
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"The branch in the task's record is {what}, and is never pushed to",
            details=f"record of {task_id}: branch {branch[:200]!a}",
            hint=f"Nothing was sent. `sandbox task fork {task_id}` goes on from its commit on a branch of its own.",
        )


def _send(git: Git, access: Access, task: Task) -> tuple[str | None, str | None]:
    """Push; what was there before, and the page for a pull request that the server names.

    What is on its way is in `pushing`, what arrived in `pushed`: after a kill between the two the remote tells which,
    and a later commit replaces it.
    """
    pushing, pushed = (f"refs/sandbox/{task.id}/{word}" for word in ("pushing", "pushed"))
    nothing = "0" * len(task.head_commit)
    before, sent = objects.resolve_ref(git, pushed), objects.resolve_ref(git, pushing)
    if sent not in {None, before} and remote_branch(git, access, task.branch) == sent:
        objects.move_ref(git, pushed, str(sent), before or nothing)
        before = sent
    objects.move_ref(git, pushing, task.head_commit, sent or nothing)
    page = push_commit(git, access, task.head_commit, task.branch, before)
    objects.move_ref(git, pushed, task.head_commit, before or nothing)
    git.run("update-ref", "--no-deref", "-d", pushing, task.head_commit)
    return before, page


def _forced(git: Git, before: str | None, after: str) -> bool:
    return before is not None and git.attempt("merge-base", "--is-ancestor", before, after).code != 0
