"""Pushes and pull requests of the cluster's tasks, and what a person is asked about calls on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox.approvals import OF_CLUSTER
from sandbox.cluster.elsewhere import elsewhere, require_task_of_packages
from sandbox.cluster.remote_files import RemoteFiles
from sandbox.cluster.windows import ArtifactWindow, ShownState, collect_changes
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import ApplyResult, PullRequest, PullRequestStatus, PushResult, ReleaseState, Status
from sandbox.models.operations import OperationName
from sandbox.store import placed_tasks
from sandbox.workbench.approvals.chosen_profile import BASE_ON_CLUSTER
from sandbox.workbench.approvals.question import (
    CLEANING,
    CLOSING,
    COMMITTING,
    CREATING,
    FORKING,
    PREPARING,
    PROMOTING,
    SENDING,
)
from sandbox.workbench.delivery.follow import FollowOptions, ignore_status, poll_until_final, transient_error
from sandbox.workbench.tasks.approved_state import add_choice, require_approved

if TYPE_CHECKING:
    from sandbox.approvals import AgentCall
    from sandbox.models import Task

_TRANSIENT = frozenset({ErrorCode.NETWORK_ERROR, ErrorCode.TIMEOUT})
"""The forge or the cluster does not answer just now."""

COMPARED = frozenset(
    {
        COMMITTING,
        CLOSING,
        FORKING,
        "space_repo_restore",
        "space_repo_sync",
        "space_repo_checkout",
        "space_repo_run_check",
        "space_repo_verify",
        "space_repo_explore",
        "space_repo_candidate",
    }
)
"""Tools of which the worker compares the files with those that were approved, under its lock."""

_OLD_WORKER = "its worker is of an earlier version, and does not compare the files with these when it acts"


class RemoteDelivery(RemoteFiles):
    """Methods of `ClusterWorkbench`."""

    @elsewhere
    def push(self, task_id: str, *, expected_commit: str | None = None) -> PushResult:
        """As in `Workbench`, by the controller that publishes: its gate and its approvals decide."""
        arguments = {"commit": self._find_commit(task_id, expected_commit)}
        return self._asked.ask(task_id, OperationName.PUSH, arguments, PushResult)

    @elsewhere
    def open_pull_request(
        self, task_id: str, title: str = "", body: str = "", *, draft: bool = True, expected_commit: str | None = None
    ) -> PullRequest:
        """As `push`."""
        commit = self._find_commit(task_id, expected_commit)
        arguments = {"commit": commit, "title": title, "body": body, "draft": draft}
        return self._asked.ask(task_id, OperationName.OPEN_PR, arguments, PullRequest)

    @elsewhere
    def pull_request_status(self, task_id: str) -> PullRequestStatus:
        """As in `Workbench`, by the controller that publishes."""
        return self._asked.ask(task_id, OperationName.PR_STATUS, {}, PullRequestStatus)

    @elsewhere
    def follow_pull_request(
        self, task_id: str, announce: Callable[[PullRequestStatus], None] | None = None, timeout_s: float = 3600.0
    ) -> PullRequestStatus:
        """As in `Workbench`, by the controller that publishes."""

        def look() -> PullRequestStatus:
            try:
                return self.pull_request_status(task_id)
            except SandboxError as error:
                if error.code in _TRANSIENT:
                    raise transient_error(error) from error
                raise

        return poll_until_final(look, FollowOptions(announce or ignore_status, timeout_s))

    @elsewhere
    def apply_task(
        self, task_id: str, directory: Path | str, *, uncommitted: bool = False, dry_run: bool = False
    ) -> ApplyResult:
        """As in `Workbench`: the worker that has the task says what it changed. This home needs the repository."""

        def ask(offset: int) -> ArtifactWindow:
            wanted = {"uncommitted": uncommitted, "offset": offset}
            return self._asked.ask(task_id, OperationName.EXPORT_CHANGES, wanted, ArtifactWindow)

        known = self.task(task_id)
        return self.apply_exported(known, collect_changes(ask), directory, dry_run=dry_run)

    @elsewhere
    def wait_release(
        self, owner_id: str, wait_s: float | None = None, *, cancelled: Callable[[], bool] | None = None
    ) -> ReleaseState:
        """As in `Workbench`, for the task's repository on this host."""
        return super().wait_release(self.task(owner_id).repo_id, wait_s, cancelled=cancelled)

    @elsewhere
    def confirm_release(self, owner_id: str) -> ReleaseState:
        """As `wait_release`."""
        return super().confirm_release(self.task(owner_id).repo_id)

    @elsewhere
    def roll_back_release(self, owner_id: str) -> ReleaseState:
        """As `wait_release`."""
        return super().roll_back_release(self.task(owner_id).repo_id)

    @elsewhere
    def releases(self, owner_id: str) -> ReleaseState:
        """As `wait_release`."""
        return super().releases(self.task(owner_id).repo_id)

    def _make_refusal(self, what: str, owner: str) -> SandboxError:
        """The host of a release builds and launches it itself (docs/adr/0148)."""
        return self._release_error(owner) if what == "promote" else super()._make_refusal(what, owner)

    def _release_error(self, task_id: str) -> SandboxError:
        known = placed_tasks.find_placed_task(self._services.home, task_id)
        repository = known.repo_id if known else "REPO"
        return SandboxError(
            ErrorCode.INVALID_INPUT,
            f"{task_id} is on a cluster, and a release is of the host that builds and launches its candidate",
            hint="Merge the task. Then run on the host that shall have the release: "
            f"`sandbox repo update {repository}`, `sandbox candidate {repository}`, `sandbox promote {repository}`.",
            reason="not_on_cluster",
        )

    def approval_call(self, tool: str, arguments: Mapping[str, Any]) -> AgentCall:
        """As in `Workbench`. Of a task of the cluster, what its worker says of it now is shown to the person, and is a
        part of what they approve. Raises: also `invalid_input` for a promotion, and for packages of a repository.
        """
        if tool == PREPARING and arguments.get("repo_id") is not None:
            require_task_of_packages(arguments["repo_id"])
        given = arguments.get("task_id")
        task_id = self.complete_owner(given) if isinstance(given, str) else None
        if task_id is None or not self.is_elsewhere(task_id):
            return super().approval_call(tool, self._add_base(tool, arguments))
        if tool == PROMOTING:  # it would be refused after a person was asked
            raise self._release_error(task_id)
        rest = {name: value for name, value in arguments.items() if name != "task_id"}
        if (inherited := self.inherited_profile(tool, arguments)) is not None:
            known = self.task(task_id)
            base = self._find_fork_base(known, rest.get("snapshot"))
            rest |= {"profile": inherited, "repo_id": known.repo_id, BASE_ON_CLUSTER: base}
        is_compared = tool in COMPARED and not (tool == FORKING and rest.get("snapshot") is not None)
        bound = self._find_files_state(task_id) if is_compared else None
        commit, uncommitted = self._describe_state(tool, task_id) if bound is None else _show(bound.status)
        shown = {OF_CLUSTER: task_id, "commit": commit, "uncommitted": uncommitted}
        if bound is None and is_compared:
            shown["not_compared"] = _OLD_WORKER
        call = super().approval_call(tool, rest)
        state = bound.state if bound is not None else ""
        if tool == CLEANING:
            state = self._find_clean_state(task_id, commit, rest.get("without"))
        elif tool == PREPARING:
            state = commit
        elif call.state:  # of a choice of a profile, which is one of this home
            state = add_choice(state, call.state)
        return replace(call, arguments={**rest, **shown}, state=state)

    def _add_base(self, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """For a new task with a chosen profile from a snapshot of the cluster, which is not in this home: its base."""
        snapshot = arguments.get("from_snapshot")
        if tool != CREATING or snapshot is None:
            return arguments
        origin = self._find_origin(arguments["repo_id"], snapshot)
        return arguments if origin is None else {**arguments, BASE_ON_CLUSTER: self._find_fork_base(origin, snapshot)}

    def _find_fork_base(self, origin: Task, snapshot: str | None) -> str:
        """The base of a new task that continues from a task of the cluster, where its worker compares the profile: a
        snapshot keeps the base that the task had, whatever it has now. A worker of an earlier version does not say it.
        """
        if snapshot is None:
            return origin.base_commit
        try:
            return self.snapshot_base(origin.id, snapshot)
        except SandboxError as error:
            if error.code is not ErrorCode.INVALID_INPUT:
                raise
            return origin.base_commit

    def needs_no_question(self, call: AgentCall) -> bool:
        """As in `Workbench`. The controller that publishes asks about a push of a task of the cluster."""
        if OF_CLUSTER in call.arguments:
            return call.tool in SENDING
        return super().needs_no_question(call)

    def _find_commit(self, task_id: str, expected: str | None) -> str:
        return expected or self.status(task_id).head_commit

    def _find_clean_state(self, task_id: str, commit: str, without: Sequence[str] | None) -> str:
        """As `approval_call` of the worker says it: what the paths contain is there. Raises: `conflict`."""
        if not without:
            return commit
        state = self._asked.ask(task_id, OperationName.CLEAN_STATE, {"without": list(without)}, str)
        require_approved("commit", state.partition(" ")[0], commit)
        return state

    def _find_files_state(self, task_id: str) -> ShownState | None:
        """None if the worker is of an earlier version, which does not say it."""
        try:
            return self._asked.ask(task_id, OperationName.CLEAN_STATE, {"files": True}, ShownState)
        except SandboxError as error:
            if error.code is not ErrorCode.INVALID_INPUT:
                raise
            return None

    def _describe_state(self, tool: str, task_id: str) -> tuple[str, object]:
        """The last commit of a task, and its uncommitted changes. A clean may be asked for because these cannot be
        read; the commit is then the last one that this home knows, and the worker refuses another one.
        """
        try:
            found = self.status(task_id)
        except SandboxError as error:
            known = placed_tasks.find_placed_task(self._services.home, task_id)
            if tool != CLEANING or error.code is not ErrorCode.QUOTA_EXCEEDED or known is None:
                raise
            return known.head_commit, error.brief
        return _show(found)


def _show(status: Status) -> tuple[str, object]:
    return status.head_commit, [change.model_dump(mode="json", exclude_none=True) for change in status.changes]
