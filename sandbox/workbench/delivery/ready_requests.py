"""What a push needs to a branch that may have a pull request: one that is ready shows each push to its reviewers, and
one with another base than the task's would show them commits that are not the task's.

The task's record does not count: another person may have opened the pull request, or made it ready. So the forge is
asked. No answer closes the gate, because anyone who can break the connection could otherwise open it.
"""

from __future__ import annotations

from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.forge import Forge
from sandbox.gate import DeliveryStep
from sandbox.models import PullRequest, PullState, Task
from sandbox.remotes import Remote, explain_unknown_host
from sandbox.text import one_line
from sandbox.workbench.checks.gate import TreeGate
from sandbox.workbench.controller.remote_access import RemoteConnector
from sandbox.workbench.delivery.forge import connect_forge, find_project, has_forge

NO_ANSWER = "no_answer"
"""The `reason` of `gate_closed` when the forge could not be asked."""


def require_open_if_ready(tree_gate: TreeGate, remote: Remote, forge: Forge | None = None) -> None:
    """Require the gate for ready pull requests if the branch has one, no matter who opened it.

    The forge is asked only when the tree is not verified and the gate needs that. A server that is not known as one may
    have pull requests all the same: it gives no answer, unless `remotes.plain_hosts` names it. `forge`: the remote's,
    if the caller is connected to it; its errors are then raised as they are, because the caller needs its answers
    anyway. Raises: `gate_closed`, also without an answer (`NO_ANSWER`); `engine_unavailable`, `image_missing` if the
    branch has a ready pull request and the tree's verdicts are unknown.
    """
    if not _may_have_requests(tree_gate, remote):
        return
    try:
        tree_gate.require_open(DeliveryStep.READY_PR)
    except SandboxError as closed:
        if not has_forge(remote):
            raise _explain_unknown_host(tree_gate, remote, closed) from closed
        ready = _find_ready(tree_gate, remote, closed) if forge is None else forge.find_ready(tree_gate.task.branch)
        if ready is not None:
            raise closed.with_hint(f"{closed.hint}\nA push would change {ready.url}, which is ready.") from closed


def require_same_base(remotes: RemoteConnector, remote: Remote, task: Task, forge: Forge | None = None) -> None:
    """Refuse to add to a pull request with another base than the task has now, as after `task sync --onto`.

    The forge is asked only when it said another base last. `forge`: as in `require_open_if_ready`. Raises: `conflict`;
    as a forge.
    """
    base = task.base_branch.removeprefix("refs/heads/")
    if task.pr_base in {None, base} or not has_forge(remote):
        return
    if forge is None:
        with connect_forge(remote, find_project(remotes, remote)) as connected:
            found = connected.find(task.branch)
    else:
        found = forge.find(task.branch)
    if found is None or found.pull.state is not PullState.OPEN or found.pull.base == base:
        return
    raise SandboxError(
        ErrorCode.CONFLICT,
        f"The pull request goes into {one_line(found.pull.base)[:200]}, but {task.id} is based on {base}",
        details=found.pull.url,
        hint=f"No data was sent. Change the base to {base} on the forge, then repeat; or "
        f"`sandbox task sync {task.id} --onto BRANCH` with the pull request's base.",
    )


def _may_have_requests(tree_gate: TreeGate, remote: Remote) -> bool:
    """Whether the remote may be a forge's: a local path is none, and neither is what the operator says is none."""
    plain = {name.lower() for name in tree_gate.services.settings.remotes.plain_hosts}
    return has_forge(remote) or (remote.protocol != "file" and remote.hostname not in plain)


def _explain_unknown_host(tree_gate: TreeGate, remote: Remote, closed: SandboxError) -> SandboxError:
    """`closed`: why the tree does not count as verified."""
    return SandboxError(
        ErrorCode.GATE_CLOSED,
        f"The gate is closed: {remote.hostname} cannot be asked whether {tree_gate.task.branch} has a ready pull "
        f"request, and tree {tree_gate.tree[:12]} is not known to be verified",
        details=closed.brief,
        hint=f"{closed.hint}\nA verified tree can be pushed without an answer. {explain_unknown_host()} If it has no "
        "pull requests, add it to remotes.plain_hosts.",
        reason=NO_ANSWER,
    )


def _find_ready(tree_gate: TreeGate, remote: Remote, closed: SandboxError) -> PullRequest | None:
    """Raises: `gate_closed` without an answer."""
    try:
        return _ask_forge(tree_gate.services.remotes, remote, tree_gate.task.branch)
    except SandboxError as error:
        raise _explain_no_answer(tree_gate, remote, closed, error) from error


def _ask_forge(remotes: RemoteConnector, remote: Remote, branch: str) -> PullRequest | None:
    with connect_forge(remote, find_project(remotes, remote)) as forge:
        return forge.find_ready(branch)


def _explain_no_answer(tree_gate: TreeGate, remote: Remote, closed: SandboxError, error: SandboxError) -> SandboxError:
    """`closed`: why the tree does not count as verified. `error`: why there is no answer."""
    return SandboxError(
        ErrorCode.GATE_CLOSED,
        f"The gate is closed: {remote.hostname} did not say whether {tree_gate.task.branch} has a ready pull request, "
        f"and tree {tree_gate.tree[:12]} is not known to be verified",
        details=f"{closed.brief}\n{error.code.value}: {error.brief}\n{error.details}".rstrip(),
        hint=f"{closed.hint}\nA verified tree can be pushed without an answer. To get an answer: "
        f"{error.hint or 'check the connection, then push again.'}",
        reason=NO_ANSWER,
    )
