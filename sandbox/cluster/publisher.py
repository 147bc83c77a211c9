"""Pushes tasks of a cluster and opens their pull requests, from a home that has the credentials of the forges.

Theory. No request is a proof: who can reach the Temporal server can ask for a push, workers run untrusted code, and
others may write to the hub. So only repositories are cloned that the settings of this home name, the state is taken
from the hub for one named commit, the path policy and the gate are those of this home, and a person answers here what
the approval policy asks about agents' calls. If the gate needs a verified tree, the checks run here, in clean rooms: no
verdict of a worker is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from sandbox import Workbench
from sandbox.approvals import AgentCall
from sandbox.cluster.noted_call import NotedCall
from sandbox.cluster.operation_table import OPERATIONS, dump_value, parse_arguments
from sandbox.cluster.worker import answer_operation, refuse_operation
from sandbox.config import Settings
from sandbox.errors import ErrorCode, SandboxError
from sandbox.gate import DeliveryStep, needs_verification
from sandbox.models import Host, Permission, Risk
from sandbox.models.operations import OperationAnswer, OperationName, TaskOperation
from sandbox.policy.approvals import Decision
from sandbox.remotes import FORGE_HOSTS, map_hosts, parse_remote
from sandbox.workbench import VerifyOptions, Watch
from sandbox.workbench.approvals.permissions import approval_required_error, permission_by_approval
from sandbox.workbench.tasks.approved_state import require_approved

_TOOLS = {OperationName.PUSH: "space_repo_push", OperationName.OPEN_PR: "space_repo_open_pr"}
"""What the approval policy calls them."""


class _Permitted(NamedTuple):
    """`state`: what was decided about, which is what may be sent; None: any, by the policy."""

    permission: Permission
    state: str | None = None


class ClusterPublisher:
    """The controller of a home with the role `publish`. Thread-safe. `hub`: URL of the hub."""

    def __init__(self, workbench: Workbench, hub: str) -> None:
        self.workbench = workbench
        self.hub = hub
        self.id = f"worker-{workbench.instance_id}"

    def perform(self, url: str, operation: TaskOperation, cancelled: Callable[[], bool]) -> OperationAnswer:
        """The answer of an operation that publishes, as `ClusterWorker.perform`. `url`: of the task's repository."""
        try:
            row = OPERATIONS[operation.name]
            if not row.publishes:
                raise SandboxError(
                    ErrorCode.POLICY_VIOLATION, f"A controller that publishes does not carry out '{operation.name}'"
                )
            if not row.changes:
                return self._carry_out(self.workbench, operation)
            return self.workbench.answer_once(operation, lambda: self._publish(url, operation, cancelled))
        except SandboxError as error:
            return refuse_operation(self.id, operation, error)

    def _publish(self, url: str, operation: TaskOperation, cancelled: Callable[[], bool]) -> OperationAnswer:
        noted = NotedCall(self.workbench.home, operation.task_id)
        try:
            arguments = parse_arguments(operation).model_dump(mode="json")
            require_listed(url, self.workbench.settings)
            commit = arguments.pop("commit")
            self.workbench.import_task(self.hub, url, operation.task_id, commit)
            self._verify_for_gate(operation, arguments, cancelled)
            permitted = self._permit(_TOOLS[operation.name], {"task_id": operation.task_id, **arguments}, noted)
            if permitted.state is not None:
                require_approved("commit", permitted.state.partition(" ")[0], commit)
            workbench = self.workbench.acting(self.workbench.caller, permitted.permission)
            answer = self._carry_out(workbench, operation, permitted.state)
        except SandboxError as error:
            answer = refuse_operation(self.id, operation, error)
        noted.forget()
        return answer

    def _verify_for_gate(
        self, operation: TaskOperation, arguments: Mapping[str, Any], cancelled: Callable[[], bool]
    ) -> None:
        """Run the checks here if the gate asks for a verified tree. Verdicts of this home are not repeated."""
        opened = DeliveryStep.DRAFT_PR if arguments.get("draft", True) else DeliveryStep.READY_PR
        step = DeliveryStep.PUSH if operation.name is OperationName.PUSH else opened
        if needs_verification(step, self.workbench.settings.gate.require):
            accepts_old_failures = self.workbench.settings.gate.accept == "no-new-failures"
            options = VerifyOptions(against="base" if accepts_old_failures else None)
            self.workbench.verify(operation.task_id, Watch(cancelled=cancelled), options)

    def _permit(self, tool: str, arguments: Mapping[str, Any], noted: NotedCall) -> _Permitted:
        """By the approval policy of this home, as for an agent here. The commit is the one of the operation; an
        approval holds for it on this base only, and for all else that the question shows.

        Raises: `approval_denied`; `approval_required`.
        """
        decision = self.workbench.approval_decision(tool, Risk.FILESYSTEM_WRITE)
        if decision is Decision.DENY:
            raise SandboxError(
                ErrorCode.APPROVAL_DENIED, f"The approval policy of the controller that publishes denies {tool}"
            )
        if decision is Decision.ALLOW:
            return _Permitted(Permission(how="policy"))
        task = self.workbench.task(arguments["task_id"])  # a sync moves its base, and so what the commit changes
        base = {"base_commit": task.base_commit, "base_branch": task.base_branch}
        call = self.workbench.approval_call(tool, {**arguments, **base})
        if self.workbench.is_allowed_by_diff(call):
            return _Permitted(Permission(how="diff"), call.state)
        return _Permitted(self._take_approval(call, noted), call.state)

    def _take_approval(self, call: AgentCall, noted: NotedCall) -> Permission:
        """An approval for one call is used up by the call that was answered, not by one that a kill interrupted."""
        interrupted_at = noted.note(call)
        taken = self.workbench.take_approval(call)
        if taken is None and interrupted_at is not None:
            taken = self.workbench.find_used_approval(call, interrupted_at)
        if taken is not None:
            return permission_by_approval(taken)
        asked, outdated = self.workbench.request_approval(call), self.workbench.find_outdated_approval(call)
        raise approval_required_error(asked, "the controller that publishes", outdated=outdated)

    def _carry_out(self, workbench: Workbench, operation: TaskOperation, state: str | None = None) -> OperationAnswer:
        """`state`: what was approved, in place of the commit in the operation, which is a part of it."""
        arguments = parse_arguments(operation)
        if state is not None:
            arguments = arguments.model_copy(update={"commit": state})
        found = OPERATIONS[operation.name].perform(workbench, operation.task_id, arguments, Watch())
        return answer_operation(self.id, operation, dump_value(found))


def require_listed(url: str, settings: Settings) -> None:
    """Before anything of the repository is fetched. Names of hosts, and of repositories on a known forge, are the same
    in either case; on another server `Team/app` and `team/app` may be two repositories.

    Raises: `policy_violation`; `invalid_input` for no URL.
    """
    patterns = settings.cluster.publishes
    if not patterns:
        return
    forges = map_hosts({hosts.setting: getattr(settings.remotes, hosts.setting) for hosts in FORGE_HOSTS.values()})
    remote = parse_remote(url, allow_file=True, allow_http=True, forges=forges)
    host = f"{remote.hostname}:{remote.port}" if remote.port else remote.hostname
    name = "/".join(part for part in (host, remote.owner, remote.name) if part)
    folds = remote.host is not Host.UNKNOWN
    if not any(fnmatchcase(name, _fold(pattern, path=folds)) for pattern in patterns):
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"The controller that publishes has no permission for {name}",
            details=f"It publishes {', '.join(patterns)}",
            hint="Its operator can add the repository to cluster.publishes there.",
        )


def _fold(pattern: str, *, path: bool) -> str:
    """As `parse_remote` spells names: the host in lower case, the path only on a forge."""
    host, slash, rest = pattern.partition("/")
    return f"{host.lower()}{slash}{rest.lower() if path else rest}"
