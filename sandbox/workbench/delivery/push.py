"""Use-cases that send a task's work to its remote."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.comparison_table import describe_comparison
from sandbox.forges.forge import Forge
from sandbox.gate import DeliveryStep
from sandbox.git import objects
from sandbox.git.local.remote_hooks import find_skipped_hooks
from sandbox.git.process import Git
from sandbox.git.push.reasons import PushRejected
from sandbox.git.push.send import push as push_commit
from sandbox.git.refs import delete_ref, move_ref, resolve_ref
from sandbox.git.transport import RemoteAccess, find_remote_branch
from sandbox.models import Delivery, PushResult, Repository, Task, TaskStatus
from sandbox.remotes import Remote
from sandbox.store.home import Home
from sandbox.store.records import find_repository, save_task
from sandbox.workbench.checks.gate import TreeGate
from sandbox.workbench.controller.remote_access import RemoteConnector
from sandbox.workbench.controller.services import Services
from sandbox.workbench.delivery.ready_requests import require_fitting_requests
from sandbox.workbench.delivery.secret_scan import require_no_secret
from sandbox.workbench.delivery.sent_commits import find_below_base, read_sent_messages, require_no_snapshot
from sandbox.workbench.tasks.approved_state import (
    BELOW_BASE,
    COMPARISON,
    PROMPT,
    Facts,
    describe_record,
    join_state,
    require_approved_state,
)
from sandbox.workbench.tasks.branch_names import is_branch_of
from sandbox.workbench.tasks.lifecycle import lock_task

_log = logging.getLogger(__name__)

AnnounceDelivery = Callable[[Delivery], None]
"""Called with what is about to be sent and the state of the gate, also if the push is refused or fails."""


def push(
    services: Services, task_id: str, expected_commit: str | None = None, announce: AnnounceDelivery | None = None
) -> PushResult:
    """Push the task's commit to its branch on the remote and verify that it arrived. `expected_commit`: the approved
    commit, or the state of `find_send_state`. Branch and commit messages are searched for secrets before.

    Raises: before the remote is contacted: `not_found`, `conflict`, `policy_violation`, `nothing_to_commit`,
    `quota_exceeded`, `auth_failed` (a keyring does not answer), `gate_closed`; before a commit is sent: `gate_closed`
    for a branch with a ready pull request, `conflict` if the pull request has another base than the task; then
    `push_rejected`, `auth_failed`, `remote_not_found`, `network_error`, `timeout`; for a local path also
    `policy_violation` if it has hooks that may decline a push.
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

    `forge`: the remote's forge, if the caller is connected to it.
    """
    with lock_task(services, task_id) as task:
        # The caller may have asked the gate before. Only this answer counts: verdicts, image and profile may have
        # changed since, and the lock keeps the commit that is sent the one that was checked.
        tree_gate = TreeGate(services, task)
        require_approved_send(tree_gate, expected_commit)
        _, git = services.repositories.open(task.repo_id)
        remote = require_sendable(services, task_id, task)
        _require_no_secret(services, git, task)
        _require_gate(tree_gate, announce)
        before = _find_last_pushed(services.remotes, remote, git, task)
        # Without `before` the push succeeds only if it makes the branch, which then has no pull request yet. A push of
        # the commit that is there changes none, but a connected caller goes on to change the pull request itself.
        if before is not None and (before != task.head_commit or forge is not None):
            require_fitting_requests(tree_gate, remote, forge)
        page = _send_with_credentials(services.remotes, remote, git, task, before)
        _save_pushed(services.home, task)
        forced = _is_forced(git, before, task.head_commit)
        skipped = find_skipped_hooks(git, remote)
        return PushResult(branch=task.branch, commit=task.head_commit, forced=forced, hooks_not_run=skipped), page


_VERIFIED = "verified"


def find_send_state(tree_gate: TreeGate, *, opens: bool) -> str:
    """What a person approves about a push or pull request: the commit, where it goes, what its files are compared with,
    which commits are sent with its base, whether it is verified, and a digest of the task's prompt, which a pull
    request publishes. `opens`: it is about a pull request; then also a digest of the comparison with the base, which it
    publishes.

    Raises: `not_found`; as `TreeGate.try_verdicts`.
    """
    asked: Facts = {_VERIFIED: None, PROMPT: None, BELOW_BASE: None, **({COMPARISON: None} if opens else {})}
    return join_state(tree_gate.task.head_commit, _find_facts(tree_gate, asked))


def describe_send(services: Services, task: Task) -> str:
    """As `find_send_state`, without a look at verdicts."""
    return join_state(task.head_commit, describe_record(services.home, task))


def require_approved_send(tree_gate: TreeGate, approved: str | None) -> None:
    """`approved`: what `find_send_state` or `describe_send` returned, or a commit; None: any. Raises: `conflict`."""
    require_approved_state("commit", tree_gate.task.head_commit, approved, lambda asked: _find_facts(tree_gate, asked))


def _find_facts(tree_gate: TreeGate, asked: Facts) -> Facts:
    more: dict[str, str | bool | None] = {}
    if _VERIFIED in asked:
        more[_VERIFIED] = tree_gate.try_verdicts().verified is True
    if PROMPT in asked:
        more[PROMPT] = _digest(tree_gate.task.prompt)
    if BELOW_BASE in asked:
        _, git = tree_gate.services.repositories.open(tree_gate.task.repo_id)
        more[BELOW_BASE] = find_below_base(git, tree_gate.task)
    if COMPARISON in asked:
        compared = tree_gate.try_comparison()
        more[COMPARISON] = None if compared is None else _digest(describe_comparison(compared))
    return describe_record(tree_gate.services.home, tree_gate.task, **more)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _require_no_secret(services: Services, git: Git, task: Task) -> None:
    """Raises: `policy_violation`, `quota_exceeded`, `auth_failed`, as the search for secrets."""
    messages = read_sent_messages(git, task)
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


def _find_last_pushed(remotes: RemoteConnector, remote: Remote, git: Git, task: Task) -> str | None:
    """The commit that our last push left on the branch; None if no push of ours has arrived.

    After a kill during a push the remote is asked which commit it has, so that a later one can replace it.
    """
    refs = _PushRefs.of(task)
    before, sent = resolve_ref(git, refs.pushed), resolve_ref(git, refs.pushing)
    if sent is None or sent == before:
        return before
    if remotes.run_with_access(remote, lambda access: find_remote_branch(git, access, task.branch)) != sent:
        return before
    move_ref(git, refs.pushed, sent, before)
    return sent


def _send_with_credentials(
    remotes: RemoteConnector, remote: Remote, git: Git, task: Task, before: str | None
) -> str | None:
    """As `_send`, with the available credentials."""
    try:
        return remotes.run_with_access(remote, lambda access: _send(git, access, task, before))
    except PushRejected as error:
        raise error.with_hint(error.hint.replace("TASK", task.id)) from error


def _save_pushed(home: Home, task: Task) -> None:
    update: dict[str, object] = {"pushed_at": datetime.now(UTC)}
    if task.status in {TaskStatus.WORKING, TaskStatus.COMMITTED}:
        update["status"] = TaskStatus.PUSHED
    save_task(home, task.model_copy(update=update))


def require_sendable(services: Services, task_id: str, task: Task) -> Remote:
    """Refuse a push that cannot succeed, from records and the ids of commits alone. Returns the remote. Whether a text
    has a secret is not looked at: an agent that needs no approval for the question could try texts.

    Raises: `not_found`; `invalid_input` for a remote that this surface may not use; `policy_violation` for the branch,
    or a snapshot in the task's history; `nothing_to_commit`.
    """
    repository = find_repository(services.home, task.repo_id)
    remote = services.remotes.parse(repository.remote_url)
    require_own_branch(task_id, task, repository)
    require_commit(task)
    require_no_snapshot(services.repositories.open(task.repo_id)[1], task)
    return remote


def require_commit(task: Task) -> None:
    """Raises: `nothing_to_commit` if the task's branch has no commit of its own."""
    if task.head_commit == task.base_commit:
        raise SandboxError(ErrorCode.NOTHING_TO_COMMIT, "The task has no commit to push", hint="Commit first.")


def require_own_branch(task_id: str, task: Task, repository: Repository) -> None:
    """Push only to a branch that was created for this task, even if the task's record names another one.

    Raises: `policy_violation`, also if the branch is the remote's default branch or the task's base.
    """
    branch = task.branch
    ours = task.id == task_id and is_branch_of(task_id, branch)
    theirs = branch in {repository.default_branch, task.base_branch.removeprefix("refs/heads/")}
    if not ours or theirs:
        what = "the repository's default branch or the task's base" if theirs else "not a branch of this task"
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"The branch in the task's record is {what}, so it is not pushed",
            details=f"record of {task_id}: branch {branch[:200]!a}",
            hint=f"No data was sent. `sandbox task fork {task_id}` continues from its commit on a new branch.",
        )


@dataclass(frozen=True)
class _PushRefs:
    """`pushing` holds the commit that is being sent, `pushed` the last one that arrived."""

    pushing: str
    pushed: str

    @classmethod
    def of(cls, task: Task) -> Self:
        return cls(*(f"refs/sandbox/{task.id}/{word}" for word in ("pushing", "pushed")))


def _send(git: Git, access: RemoteAccess, task: Task, before: str | None) -> str | None:
    """Push; return the web page for a pull request that the server names. `before`: what the branch must be at."""
    refs = _PushRefs.of(task)
    move_ref(git, refs.pushing, task.head_commit, resolve_ref(git, refs.pushing))
    page = push_commit(git, access, task.head_commit, task.branch, before)
    try:
        _note_arrival(git, task, before)
    except SandboxError as error:  # it arrived all the same: from `pushing` the next push finds that out
        _log.warning("the push of %s arrived, which is not noted: %s: %s", task.id, error.brief, error.details)
    return page


def _note_arrival(git: Git, task: Task, before: str | None) -> None:
    refs = _PushRefs.of(task)
    move_ref(git, refs.pushed, task.head_commit, before)
    delete_ref(git, refs.pushing, task.head_commit)
    # As git does after its own push; the next fetch says whether the branch is still there (`tasks.only_copies`).
    git.attempt("update-ref", "--no-deref", f"refs/remotes/origin/{task.branch}", task.head_commit)


def find_pushed(services: Services, task: Task) -> PushResult | None:
    """What our last push brought, if it was of the task's last commit, and the remote's branch is there now: it is
    asked, and sent no data. None otherwise. Raises: as `push` before a commit is sent.
    """
    remote = require_sendable(services, task.id, task)
    _, git = services.repositories.open(task.repo_id)
    if task.pushed_at is None or resolve_ref(git, _PushRefs.of(task).pushed) != task.head_commit:
        return None
    now = services.remotes.run_with_access(remote, lambda access: find_remote_branch(git, access, task.branch))
    return PushResult(branch=task.branch, commit=now, forced=False) if now == task.head_commit else None


def _is_forced(git: Git, before: str | None, after: str) -> bool:
    return before is not None and not objects.is_ancestor(git, before, after)
