"""Use-cases that send a task's work to its remote."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime

from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.forge import Forge
from sandbox.gate import DeliveryStep
from sandbox.git import objects
from sandbox.git.log import read_messages
from sandbox.git.process import Git
from sandbox.git.push.reasons import PushRejected
from sandbox.git.push.send import push as push_commit
from sandbox.git.transport import RemoteAccess, find_remote_branch
from sandbox.models import Delivery, PullState, PushResult, Repository, Task, TaskStatus
from sandbox.remotes import Remote
from sandbox.store.home import Home
from sandbox.store.records import find_repository, save_task
from sandbox.workbench.checks.gate import TreeGate
from sandbox.workbench.controller.remote_access import RemoteConnector
from sandbox.workbench.controller.services import Services
from sandbox.workbench.delivery.forge import connect_forge, find_project, has_forge
from sandbox.workbench.delivery.secret_scan import require_no_secret
from sandbox.workbench.tasks.approved_state import require_approved
from sandbox.workbench.tasks.lifecycle import lock_task

AnnounceDelivery = Callable[[Delivery], None]
"""Called with what is about to be sent and the state of the gate, also if the push is refused or fails."""


def push(
    services: Services, task_id: str, expected_commit: str | None = None, announce: AnnounceDelivery | None = None
) -> PushResult:
    """Push the task's commit to its branch on the remote and verify that it arrived. `expected_commit`: the approved
    commit. Branch and commit messages are searched for secrets before.

    Raises: before the remote is contacted: `not_found`, `conflict`, `policy_violation`, `nothing_to_commit`,
    `quota_exceeded`, `auth_failed` (a keyring does not answer), `gate_closed`; then `push_rejected`, `auth_failed`,
    `remote_not_found`, `network_error`, `timeout`.
    """
    return push_with_page(services, task_id, expected_commit, announce)[0]


def push_with_page(
    services: Services,
    task_id: str,
    expected_commit: str | None,
    announce: AnnounceDelivery | None = None,
    *,
    forge: Forge | None = None,
) -> tuple[PushResult, str | None]:
    """As `push`; also returns the web page for a new pull request, if the server names one.

    `forge`: the remote's forge, if the caller is connected to it; there may then be a pull request that is not in the
    task's record.
    """
    with lock_task(services, task_id) as task:
        require_approved("commit", task.head_commit, expected_commit)
        repository, git = services.repositories.open(task.repo_id)
        remote = services.remotes.parse(repository.remote_url)
        require_own_branch(task_id, task, repository)
        require_commit(task)
        _require_no_secret(services, git, task)
        # The caller may have asked the gate before. Only this answer counts: verdicts, image and profile may have
        # changed since, and the lock keeps the commit that is sent the one that was checked.
        tree_gate = TreeGate(services, task)
        _require_gate(tree_gate, announce)
        if task.pr_url is not None or (forge is not None and task.pushed_at is not None):
            _require_open_if_ready(tree_gate, remote, forge)
        before, page = _send_with_credentials(services.remotes, remote, git, task)
        _save_pushed(services.home, task)
        forced = _is_forced(git, before, task.head_commit)
        return PushResult(branch=task.branch, commit=task.head_commit, forced=forced), page


def _require_no_secret(services: Services, git: Git, task: Task) -> None:
    """Raises: `policy_violation`, `quota_exceeded`, `auth_failed`, as the search for secrets."""
    messages = read_messages(git, task.base_commit, task.head_commit)
    require_no_secret(services.credentials, task.branch, messages, what="The branch's name or a commit message")


def _require_gate(tree_gate: TreeGate, announce: AnnounceDelivery | None) -> None:
    """Raises: as the gate."""
    if announce is None:
        tree_gate.require_open(DeliveryStep.PUSH)
        return
    sent = describe_delivery(tree_gate, DeliveryStep.PUSH)
    announce(sent)
    tree_gate.require_state(sent.gate)


def describe_delivery(tree_gate: TreeGate, step: DeliveryStep) -> Delivery:
    """What a step would send, and the state of the gate. Raises: as `TreeGate.find_state`."""
    task = tree_gate.task
    remote = find_repository(tree_gate.services.home, task.repo_id).remote_url
    return Delivery(remote=remote, branch=task.branch, commit=task.head_commit, gate=tree_gate.find_state(step))


def _send_with_credentials(
    remotes: RemoteConnector, remote: Remote, git: Git, task: Task
) -> tuple[str | None, str | None]:
    """As `_send`, with the available credentials."""
    try:
        return remotes.run_with_access(remote, lambda access: _send(git, access, task))
    except PushRejected as error:
        raise error.with_hint(error.hint.replace("TASK", task.id)) from error


def _save_pushed(home: Home, task: Task) -> None:
    update: dict[str, object] = {"pushed_at": datetime.now(UTC)}
    if task.status in {TaskStatus.WORKING, TaskStatus.COMMITTED}:
        update["status"] = TaskStatus.PUSHED
    save_task(home, task.model_copy(update=update))


def _require_open_if_ready(tree_gate: TreeGate, remote: Remote, forge: Forge | None) -> None:
    """A push also changes an existing pull request. If that one is ready for review, the gate for ready ones applies.

    The forge is asked only when the tree is not verified. Raises: `gate_closed`, and as a forge.
    """
    if not has_forge(remote):
        return
    try:
        tree_gate.require_open(DeliveryStep.READY_PR)
    except SandboxError:
        with _reuse_or_connect(tree_gate.services, remote, forge) as connected:
            if _has_ready_pull_request(connected, tree_gate.task.branch):
                raise


def _reuse_or_connect(services: Services, remote: Remote, forge: Forge | None) -> AbstractContextManager[Forge]:
    return connect_forge(remote, find_project(services.remotes, remote)) if forge is None else nullcontext(forge)


def _has_ready_pull_request(forge: Forge, branch: str) -> bool:
    found = forge.find(branch)
    return found is not None and found.pull.state is PullState.OPEN and not found.pull.draft


def require_commit(task: Task) -> None:
    """Raises: `nothing_to_commit` if the task's branch has no commit of its own."""
    if task.head_commit == task.base_commit:
        raise SandboxError(ErrorCode.NOTHING_TO_COMMIT, "The task has no commit to push", hint="Commit first.")


def require_own_branch(task_id: str, task: Task, repository: Repository) -> None:
    """Push only to a branch that was created for this task, even if the task's record names another one.

    Raises: `policy_violation`, also if the branch is the remote's default branch or the task's base.
    """
    branch = task.branch
    ours = task.id == task_id and re.fullmatch(rf"space-agent/{re.escape(task_id)}-[a-z0-9-]+", branch) is not None
    theirs = branch in {repository.default_branch, task.base_branch.removeprefix("refs/heads/")}
    if not ours or theirs:
        what = "the repository's default branch or the task's base" if theirs else "not a branch of this task"
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"The branch in the task's record is {what}, so it is not pushed",
            details=f"record of {task_id}: branch {branch[:200]!a}",
            hint=f"No data was sent. `sandbox task fork {task_id}` continues from its commit on a new branch.",
        )


def _send(git: Git, access: RemoteAccess, task: Task) -> tuple[str | None, str | None]:
    """Push; return the commit that the branch had before, and the web page for a pull request that the server names.

    The ref `pushing` holds the commit that is being sent, `pushed` the one that arrived. After a kill between the two,
    the remote is asked which one it has, so that a later commit can replace it.
    """
    pushing, pushed = (f"refs/sandbox/{task.id}/{word}" for word in ("pushing", "pushed"))
    absent = "0" * len(task.head_commit)  # the old value of a new ref
    before, sent = objects.resolve_ref(git, pushed), objects.resolve_ref(git, pushing)
    if sent not in {None, before} and find_remote_branch(git, access, task.branch) == sent:
        objects.move_ref(git, pushed, str(sent), before or absent)
        before = sent
    objects.move_ref(git, pushing, task.head_commit, sent or absent)
    page = push_commit(git, access, task.head_commit, task.branch, before)
    objects.move_ref(git, pushed, task.head_commit, before or absent)
    git.run("update-ref", "--no-deref", "-d", pushing, task.head_commit)
    return before, page


def _is_forced(git: Git, before: str | None, after: str) -> bool:
    return before is not None and git.attempt("merge-base", "--is-ancestor", before, after).code != 0
