"""Use-cases of pull requests: open or find, describe, follow.

Theory. The forge and the remote are the source of truth; the task's record only repeats their state. After a kill
between any two steps, the next call asks again and continues from what it finds. No pull request is opened twice,
because the forge is asked for one of this branch before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sandbox.credentials import Credential
from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.forge import Forge, Project, Proposal, PullWithText
from sandbox.forges.rollup import verdict_of
from sandbox.gate import DeliveryStep
from sandbox.git.refs import resolve_ref
from sandbox.lazy_module import LazyModule
from sandbox.models import Actor, CiVerdict, PullRequest, PullRequestStatus, PullState, Task, TaskStatus
from sandbox.remotes import Remote
from sandbox.store.home import Home
from sandbox.store.records import find_repository, find_task, save_task
from sandbox.text import one_line
from sandbox.workbench.checks.gate import TreeGate
from sandbox.workbench.controller.journaling import record_operation
from sandbox.workbench.controller.registered_repositories import RegisteredRepositories
from sandbox.workbench.controller.services import Services
from sandbox.workbench.delivery import description, push, request_receipts, secret_scan
from sandbox.workbench.delivery.forge import connect_forge, find_project, has_forge, require_forge, unsupported_forge
from sandbox.workbench.tasks import lifecycle

if TYPE_CHECKING:
    from sandbox.forges import body
    from sandbox.models.receipts import SignedReceipt
    from sandbox.workbench.tasks import sync
else:
    body = LazyModule("sandbox.forges.body")
    sync = LazyModule("sandbox.workbench.tasks.sync")


@dataclass(frozen=True)
class PullRequestOptions:
    """What the caller requests. An empty `title`: the subject of the first commit. `body`: placed before our record."""

    title: str = ""
    body: str = ""
    draft: bool = True

    @property
    def step(self) -> DeliveryStep:
        """The step that the gate decides about."""
        return DeliveryStep.DRAFT_PR if self.draft else DeliveryStep.READY_PR


def open_pull_request(
    services: Services,
    task_id: str,
    options: PullRequestOptions,
    expected_commit: str | None = None,
    announce: push.AnnounceDelivery | None = None,
) -> PullRequest:
    """Push the task's last commit and open a pull request for its branch, or update the existing one.

    The whole operation is about one commit on one base; another one in between is `conflict`. `expected_commit`: the
    approved commit, or the state of `push.find_send_state`. Raises: as `push`; `invalid_input`, `forge_unsupported`,
    `auth_failed`, and as a forge.
    """
    task = find_task(services.home, task_id)
    tree_gate = TreeGate(services, task)
    push.require_approved_send(tree_gate, expected_commit)
    begun = push.describe_send(services, task)  # what the proposal is about
    remote = services.remotes.parse(find_repository(services.home, task.repo_id).remote_url)
    require_openable(services, task, remote)
    project = find_project(services.remotes, remote) if has_forge(remote) else None
    if announce is not None:
        announce(push.describe_delivery(tree_gate, options.step))
    receipt = request_receipts.sign_receipt(tree_gate) if project is not None else None
    facts = _gather_facts(tree_gate, options, receipt)
    proposal = _build_proposal(tree_gate, facts, options, project)  # checks gate and texts before anything is sent
    if project is None:
        _, page = push.push_with_page(services, task_id, begun)
        raise unsupported_forge(remote, task.branch, task.base_branch, page)
    with connect_forge(remote, project) as forge:
        push.push_with_page(services, task_id, begun, forge=forge)
        if receipt is not None:
            request_receipts.push_receipt(services, task.repo_id, receipt)
        with lifecycle.lock_task(services, task_id) as task:
            _require_still_open(TreeGate(services, task), begun, options.step)
            pull = _PullRequestOpener(services, forge, project.credential, task, proposal).open_or_update()
            _save_state(services.home, task, pull)
            return pull


def _require_still_open(tree_gate: TreeGate, begun: str, step: DeliveryStep) -> None:
    """After the push, which may take minutes: the task and the gate are as before it, so that no pull request becomes
    ready with a tree that failed meanwhile. Raises: `conflict`, `gate_closed`; as `TreeGate.require_open`.
    """
    push.require_approved_send(tree_gate, begun)
    try:
        tree_gate.require_open(step)
    except SandboxError as error:
        raise error.with_hint(f"{error.hint}\nThe branch was pushed. No pull request was opened or changed.") from error


def require_openable(services: Services, task: Task, remote: Remote) -> None:
    """Refuse a pull request that no answer of a server could make possible. A host that is not known as a forge gets
    the branch: its answer to the push may name the page where a person opens the pull request.

    Raises: `forge_unsupported` for a local path; `invalid_input`; `not_found` for a base that the remote no longer has.
    """
    if remote.protocol == "file":
        require_forge(remote, task.branch, task.base_branch)
    if has_forge(remote):
        _require_base(services.repositories, task)


def _require_base(repositories: RegisteredRepositories, task: Task) -> None:
    """A task may start at a tag or a commit, but a pull request needs a branch as base. Raises: `invalid_input`;
    `not_found` for a branch that the remote no longer has.
    """
    repository, git = repositories.open(task.repo_id)
    if resolve_ref(git, f"refs/remotes/origin/{task.base_branch}") is None:
        sync.require_base_branch(git, repository, task, task.base_branch)
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"{task.id} starts at {task.base_branch}, which is not a branch that a pull request can be merged into",
            hint=f"No data was sent. Push with `sandbox push {task.id}`, then choose a base branch on the forge.",
        )


def _gather_facts(tree_gate: TreeGate, options: PullRequestOptions, receipt: SignedReceipt | None) -> body.BodyFacts:
    services, task = tree_gate.services, tree_gate.task
    is_trusted = services.surface.actor is not Actor.AGENT
    facts = description.gather_facts(services, task, options.body or None, trusted=is_trusted, tree_gate=tree_gate)
    return facts if receipt is None else replace(facts, receipt=request_receipts.describe(services, task, receipt))


def _build_proposal(
    tree_gate: TreeGate, facts: body.BodyFacts, options: PullRequestOptions, project: Project | None
) -> Proposal:
    """The pull request to open. Raises: `gate_closed`; `invalid_input`; `policy_violation` for a text that is too long
    or contains a secret.
    """
    services, task = tree_gate.services, tree_gate.task
    if not facts.verified:  # a verified tree passes every gate
        tree_gate.require_open(options.step)
    first = facts.commits[0][1] if facts.commits else None
    title = body.compose_title(options.title or None, first, task.prompt, trusted=facts.trusted)
    text = body.compose(facts)
    secret_scan.require_no_secret(services.credentials, title, text, others=[project.credential] if project else [])
    return Proposal(head=task.branch, base=task.base_branch, title=title, body=text, draft=options.draft)


@dataclass(frozen=True)
class _PullRequestOpener:
    """Opens or updates one pull request. `credential`: its secret must not appear in a text."""

    services: Services
    forge: Forge
    credential: Credential
    task: Task
    proposal: Proposal

    def open_or_update(self) -> PullRequest:
        # The push may have asked before. Only this answer counts: the push has moved the head, and people may have
        # edited the body, merged or closed the pull request meanwhile.
        found = self.forge.find(self.task.branch)
        if found is not None and found.pull.state is PullState.OPEN:
            return self._update_existing(found)
        if found is not None and found.pull.state is PullState.MERGED:
            self._require_new_commit(found.pull)
        opened = self.forge.open(self.proposal)
        return opened.pull if opened.pull.created else self._update_existing(opened)

    def _require_new_commit(self, merged: PullRequest) -> None:
        if merged.head_commit != self.task.head_commit:
            return
        _save_state(self.services.home, self.task, merged)
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"{self.task.id} is already merged",
            details=merged.url,
            hint="Create a new task for further work.",
        )

    def _require_same_base(self, pull: PullRequest) -> None:
        """The request to update it, or to make it ready, was made for the task's base, not for another one. The push
        has looked, but people may have changed the base since.
        """
        if pull.base != self.proposal.base:
            raise SandboxError(
                ErrorCode.CONFLICT,
                f"The pull request's base is {one_line(pull.base)[:200]}, but the task's base is {self.proposal.base}",
                details=pull.url,
                hint="The branch was pushed, and the pull request is unchanged: change its base there, then repeat.",
            )

    def _update_existing(self, found: PullWithText) -> PullRequest:
        """Update only our own part of the body, since people may have edited the rest."""
        self._require_same_base(found.pull)
        number = found.pull.number
        text = body.replace_generated(found.body, self.proposal.body)
        if text is not None and text != found.body:
            secret_scan.require_no_secret(self.services.credentials, text, others=[self.credential])
            self.forge.replace_body(number, text)
        if found.pull.draft and not self.proposal.draft:
            self.forge.make_ready(number)
            return found.pull.model_copy(update={"draft": False})
        return found.pull


def find_open_request(services: Services, task: Task, *, draft: bool) -> PullRequest | None:
    """The task's pull request, if it is open with the task's last commit on the task's base now, and no draft where
    `draft` is false. The forge is only asked. None otherwise.

    Raises: `forge_unsupported`, `auth_failed`, and as a forge.
    """
    remote = services.remotes.parse(find_repository(services.home, task.repo_id).remote_url)
    if task.pr_url is None or not has_forge(remote):
        return None
    with connect_forge(remote, find_project(services.remotes, remote)) as forge:
        found = forge.find(task.branch)
    if found is None or (found.pull.draft and not draft):
        return None
    wanted = (task.pr_url, PullState.OPEN, task.head_commit, task.base_branch)
    pull = found.pull
    return pull if (pull.url, pull.state, pull.head_commit, pull.base) == wanted else None


def find_status(services: Services, task_id: str) -> PullRequestStatus:
    """The task's pull request, with one combined verdict of all checks on its head.

    Raises: `not_found`, `forge_unsupported`, `auth_failed`, and as a forge.
    """
    task = find_task(services.home, task_id, allow_closed=True)
    remote = services.remotes.parse(find_repository(services.home, task.repo_id).remote_url)
    require_forge(remote, task.branch, task.base_branch)
    with connect_forge(remote, find_project(services.remotes, remote)) as forge:
        return poll_status(services, forge, task)


def poll_status(services: Services, forge: Forge, task: Task) -> PullRequestStatus:
    """Ask the forge once and update the task's record. Raises: `not_found` when there is no pull request."""
    found = forge.find(task.branch)
    if found is None:
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"{task.id} has no pull request",
            details=f"no pull request has the head branch {task.branch}",
            hint=f"sandbox pr open {task.id}",
        )
    pull = found.pull
    _update_task(services, task, pull)
    checks = forge.checks(pull.head_commit, pull.number)
    verdict = verdict_of(checks)
    return PullRequestStatus(
        url=pull.url,
        number=pull.number,
        state=pull.state,
        draft=pull.draft,
        head_commit=pull.head_commit,
        current=pull.head_commit == task.head_commit,
        verdict=verdict,
        checks=tuple(forge.add_excerpts(checks) if verdict is CiVerdict.FAIL else checks),
        unseen=forge.unseen,
    )


def _update_task(services: Services, task: Task, pull: PullRequest) -> None:
    """Update the task's record from the forge. While another operation holds the task, the next poll does it."""
    closes = pull.state is PullState.CLOSED and task.status is not TaskStatus.CLOSED and task.pr_url == pull.url
    try:
        if task.status is TaskStatus.CLOSED:
            _save_head_of_closed(services.home, task.id, pull)
            return
        with lifecycle.lock_task(services, task.id, wait_s=lifecycle.EDIT_WAIT_S if closes else 0.0) as now:
            is_new = pull.state is PullState.MERGED and now.status is not TaskStatus.MERGED
            _save_state(services.home, now, pull)
        if closes:
            with record_operation(services, task.id, "close", {"url": pull.url}, names=[pull.url]) as done:
                done(lifecycle.close_task(services, task.id, delete=False, discard=False))
        elif is_new:
            with record_operation(services, task.id, "pr-merged", {"url": pull.url}, names=[pull.url]):
                pass  # the journal says when this host learned of it
    except SandboxError as error:
        if error.code is not ErrorCode.CONFLICT:
            raise


def _save_head_of_closed(home: Home, task_id: str, pull: PullRequest) -> None:
    """The head says which commits the forge keeps, so which need no copy here. Raises: `conflict` for a task in use."""
    with home.locked(task_id, 0.0):
        now = find_task(home, task_id, allow_closed=True)
        if now.pr_url == pull.url and now.pr_head != pull.head_commit:
            save_task(home, now.model_copy(update={"pr_head": pull.head_commit}))


def _save_state(home: Home, task: Task, pull: PullRequest) -> None:
    """The caller holds the task's lock."""
    known = {PullState.OPEN: TaskStatus.PR_OPEN, PullState.MERGED: TaskStatus.MERGED}
    said = {
        "pr_url": pull.url,
        "pr_base": pull.base,
        "pr_head": pull.head_commit,
        "status": known.get(pull.state, task.status),
    }
    after = task.model_copy(update=said)
    if after != task:
        save_task(home, after)
