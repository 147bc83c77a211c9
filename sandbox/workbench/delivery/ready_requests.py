"""What a push needs to a branch that may have a pull request: one that is ready shows each push to its reviewers, and
one with another base than the task's would show them commits that are not the task's, of which the gate has judged
the checks of another branch.

The task's record does not count: another person may have opened the pull request, or made it ready. So the forge is
asked. No answer closes the gate, because anyone who can break the connection could otherwise open it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.forge import Forge
from sandbox.gate import DeliveryStep, needs_verification
from sandbox.models import PullRequest, Task
from sandbox.remotes import Remote, explain_unknown_host
from sandbox.store.records import find_repository
from sandbox.text import one_line
from sandbox.workbench.checks.gate import TreeGate
from sandbox.workbench.delivery.forge import connect_forge, find_project, has_forge

NO_ANSWER = "no_answer"
"""The `reason` of `gate_closed` when the forge could not be asked."""


def require_fitting_requests(tree_gate: TreeGate, remote: Remote, forge: Forge | None) -> None:
    """Require of all open pull requests of the branch, no matter who opened them: the gate for ready ones, and that
    they go into the branch that the task is based on: the gate asks for its checks.

    The forge is asked where the tree is not verified and the gate needs that, and about the base (`_list_open`). A
    server that is not known as one may have pull requests all the same: it gives no answer, unless
    `remotes.plain_hosts` names it. `forge`: the remote's, if the caller is connected to it; its errors are then raised
    as they are, because the caller needs its answers anyway. Raises: `gate_closed`, also without an answer
    (`NO_ANSWER`); `engine_unavailable`, `image_missing` if the branch has a ready pull request and the tree's verdicts
    are unknown; `conflict` for another base; as a forge.
    """
    closed = _find_closed(tree_gate) if _may_have_requests(tree_gate, remote) else None
    if not has_forge(remote):
        if closed is not None:
            raise _explain_unknown_host(tree_gate, remote, closed) from closed
        return
    if forge is not None:
        _require_fitting(tree_gate, forge.list_open(tree_gate.task.branch), closed)
    elif closed is not None or _may_have_other_base(tree_gate):
        _require_fitting(tree_gate, _list_open(tree_gate, remote, closed), closed)


def _find_closed(tree_gate: TreeGate) -> SandboxError | None:
    """Why no ready pull request may get the tree; None if one may."""
    try:
        tree_gate.require_open(DeliveryStep.READY_PR)
    except SandboxError as closed:
        return closed
    return None


def _may_have_other_base(tree_gate: TreeGate) -> bool:
    """Whether the forge said another base than the task's last, or it matters to the gate, which judges that one."""
    task = tree_gate.task
    needed = needs_verification(DeliveryStep.READY_PR, tree_gate.services.settings.gate.require)
    return needed or task.pr_base not in {None, _base_of(task)}


def _base_of(task: Task) -> str:
    return task.base_branch.removeprefix("refs/heads/")


def _require_fitting(tree_gate: TreeGate, pulls: Sequence[PullRequest], closed: SandboxError | None) -> None:
    """`closed`: why the tree does not count as verified; None: it does, or need not. A draft of another person into
    another branch is theirs to make ready.
    """
    task, base = tree_gate.task, _base_of(tree_gate.task)
    ready = next((pull for pull in pulls if not pull.draft), None)
    if closed is not None and ready is not None:
        raise closed.with_hint(f"{closed.hint}\nA push would change {ready.url}, which is ready.") from closed
    shown = (pull for pull in pulls if not pull.draft or pull.url == task.pr_url)
    other = next((pull for pull in shown if pull.base != base), None)
    if other is not None:
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"The pull request goes into {one_line(other.base)[:200]}, but {task.id} is based on {base}",
            details=other.url,
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


def _list_open(tree_gate: TreeGate, remote: Remote, closed: SandboxError | None) -> Sequence[PullRequest]:
    """Ask the forge. Without an answer a verified tree may go to a task's base that is the default branch: other people
    open a pull request into another one on purpose only. Raises: `gate_closed` without an answer; as a forge if it said
    another base last.
    """
    services, task = tree_gate.services, tree_gate.task
    try:
        with connect_forge(remote, find_project(services.remotes, remote)) as forge:
            return forge.list_open(task.branch)
    except SandboxError as error:
        if closed is not None:
            raise _explain_no_answer(tree_gate, remote, closed, error) from error
        if task.pr_base not in {None, _base_of(task)}:
            raise
        if _base_of(task) == find_repository(services.home, task.repo_id).default_branch:
            return ()
        raise _explain_unknown_base(tree_gate.task, remote, error) from error


def _explain_unknown_base(task: Task, remote: Remote, error: SandboxError) -> SandboxError:
    """`error`: why there is no answer."""
    return SandboxError(
        ErrorCode.GATE_CLOSED,
        f"The gate is closed: {remote.hostname} did not say whether {task.branch} has a pull request into another "
        f"branch than {_base_of(task)}; the tree has passed the checks of that one",
        details=f"{error.code.value}: {error.brief}\n{error.details}".rstrip(),
        hint=error.hint or "Check the connection, then push again.",
        reason=NO_ANSWER,
    )


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
