"""Carries out operations on the tasks of this host, each once, and keeps their state in the hub."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from sandbox import Workbench
from sandbox.cluster.done_operations import answer_done, describe_done
from sandbox.cluster.operation_table import OPERATIONS, ExploreArguments, VerifyArguments, dump_value, parse_arguments
from sandbox.cluster.repository_key import make_repository_key
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Repository
from sandbox.models.operations import OperationAnswer, OperationError, OperationName, TaskOperation, WorkerInfo
from sandbox.version import __version__
from sandbox.workbench import Watch

_log = logging.getLogger(__name__)


def _never() -> bool:
    return False


def _key_of(repository: Repository) -> str:
    return make_repository_key(repository.remote_url)


class ClusterWorker:
    """The controller of one home, for a dispatcher. Thread-safe. `hub`: URL of the hub; empty: this host is the only
    one, and a task is lost with it. `labels`: what it announces beside the capabilities of its host. `publishes`:
    whether it pushes tasks itself, as the only worker does.

    Its id is that of the home: hosts that share an engine or an address are still different workers.
    """

    def __init__(
        self, workbench: Workbench, hub: str = "", labels: Mapping[str, str] | None = None, *, publishes: bool = False
    ) -> None:
        self.workbench = workbench
        self.hub = hub
        self.labels = dict(labels or {})
        self._publishes = publishes
        self.id = f"worker-{workbench.instance_id}"

    def perform(self, operation: TaskOperation, cancelled: Callable[[], bool] = _never) -> OperationAnswer:
        """The answer of an operation; that of an earlier call with the same id if it changes the task. Never raises a
        `SandboxError`: it is in the answer. `cancelled`: ends checks, with a verdict.
        """
        try:
            row = OPERATIONS[operation.name]
            if row.publishes and not self._publishes:
                raise _no_publisher_error(operation)
            if not row.changes:
                return answer_operation(self.id, operation, self._carry_out(operation, cancelled))
            return self.workbench.answer_once(operation, lambda: self._perform_change(operation, cancelled))
        except SandboxError as error:
            return refuse_operation(self.id, operation, error)

    def describe(self, slots: int | None = None) -> WorkerInfo:
        """What it announces. `slots`: how many it has. Raises: errors of the engine; `policy_violation`."""
        found = self.workbench.capabilities(self.labels)
        return WorkerInfo(id=self.id, version=__version__, slots=slots, capabilities=found)

    def has_clone(self, key: str) -> bool:
        """Whether this host has the repository of a key, which is not empty."""
        return bool(key) and key in map(_key_of, self.workbench.repositories())

    def has_room(self) -> bool:
        """Whether the disk of this host takes another task."""
        try:
            self.workbench.require_room()
        except SandboxError:
            return False
        return True

    def list_clones(self) -> tuple[str, ...]:
        """The keys of the repositories that this host has, the one fetched longest ago first."""
        found = self.workbench.repositories()
        fetched = {one.id: self.workbench.fetched_at(one.id) or one.created_at for one in found}
        ordered = sorted(found, key=lambda one: fetched[one.id])
        return tuple(key for key in map(_key_of, ordered) if key)

    def take_over(self, url: str, task_id: str, epoch: int) -> None:
        """Continue a task of a lost worker from the hub.

        Raises: `not_found` if the hub has no state of it; `conflict`; `invalid_input` without a hub; as `clone`.
        """
        if not self.hub:
            raise SandboxError(
                ErrorCode.INVALID_INPUT,
                "Without a hub a task cannot go on elsewhere",
                hint="Set cluster.hub to a repository that all workers reach.",
            )
        self.workbench.take_over_task(self.hub, url, task_id, epoch)

    def _perform_change(self, operation: TaskOperation, cancelled: Callable[[], bool]) -> OperationAnswer:
        try:
            if operation.name is OperationName.CREATE:
                self.workbench.give_up_unfinished_task(operation.task_id, operation.epoch)
            if operation.name is OperationName.FORK:
                self.workbench.begin_fork(str(operation.arguments["fork_id"]), operation.id, operation.epoch)
            if answer := answer_done(self.workbench.find_done_operation(operation.task_id, operation.epoch), operation):
                return answer
            value = self._carry_out(operation, cancelled)
        except SandboxError as error:
            self._send_unsent(operation)
            return refuse_operation(self.id, operation, error)
        try:
            state = self._keep_state(operation, value)
        except SandboxError as error:
            return refuse_operation(self.id, operation, error)
        return answer_operation(self.id, operation, value, state)

    def _send_unsent(self, operation: TaskOperation) -> None:
        """After an operation that sends no state of its task: an earlier one may not have reached the hub, such as a
        commit, which then can be repeated or published.
        """
        if not self.hub:
            return
        try:
            self.workbench.send_unsent_task_state(self.hub, operation.task_id, operation.epoch)
        except SandboxError as error:
            _log.info("the state of %s is still not in the hub: %s", operation.task_id, error.brief)

    def _carry_out(self, operation: TaskOperation, cancelled: Callable[[], bool]) -> object:
        arguments = parse_arguments(operation)
        row = OPERATIONS[operation.name]
        if isinstance(arguments, ExploreArguments):
            self._require_here(operation.task_id, arguments.task_ids)
        if isinstance(arguments, VerifyArguments) and (arguments.against or "").startswith("task-"):
            self._require_here(operation.task_id, [self.workbench.complete_id(arguments.against or "")])
        return dump_value(row.perform(self.workbench, operation.task_id, arguments, Watch(cancelled=cancelled)))

    def _require_here(self, task_id: str, others: Sequence[str]) -> None:
        """Of a task that moved to another worker, this home may have an older state. Raises: `not_found`."""
        for other in others:
            if self.hub and not self.workbench.has_latest_state(self.hub, other):
                raise SandboxError(
                    ErrorCode.NOT_FOUND,
                    f"{other} is not on the worker that has {task_id}",
                    hint="A fork is, until one of both moves. Give the changes of another task as a patch: its diff.",
                    reason="on_another_worker",
                )

    def _keep_state(self, operation: TaskOperation, value: object) -> str | None:
        """Send the state to the hub: only then is the operation over, for it could be lost with this host before.
        `value`: what is answered then, and recorded there.

        Raises: `conflict` if another worker has the task by now; what it did is then not part of the task.
        """
        if not self.hub:
            return None
        if operation.name is OperationName.FORK:
            state = self._send_first(str(operation.arguments["fork_id"]), operation.epoch)
            self._send_unsent(operation)
            return state
        if operation.name is OperationName.CREATE:
            return self._send_first(operation.task_id, operation.epoch)
        done = describe_done(self.id, operation, value)
        if operation.name is OperationName.CLOSE:
            self.workbench.end_task_state(self.hub, operation.task_id, operation.epoch, done)
            return None
        return self.workbench.send_task_state(self.hub, operation.task_id, operation.epoch, done)

    def _send_first(self, task_id: str, epoch: int) -> str:
        """The first state of a new task. The epoch of a fork is that of its parent: a worker that lost the parent, and
        forks it late, then has an ended epoch of the fork, too. A task that the hub does not have is deleted: its
        caller gets an error, and keeps no record of it.
        """
        try:
            return self.workbench.send_task_state(self.hub, task_id, epoch)
        except SandboxError as error:
            self.workbench.close_task(task_id, delete_worktree=True, discard=True)
            raise error.with_changes(
                brief=f"{task_id} was not created, because the hub did not take it: {error.brief}"
            ) from error


def answer_operation(worker: str, operation: TaskOperation, value: object, state: str | None = None) -> OperationAnswer:
    """The answer of an operation that was carried out. `state`: the task's commit in the hub, if it was sent there."""
    return OperationAnswer(
        operation_id=operation.id,
        task_id=operation.task_id,
        epoch=operation.epoch,
        worker=worker,
        value=value,
        state=state,
    )


def refuse_operation(worker: str, operation: TaskOperation, error: SandboxError) -> OperationAnswer:
    """The answer of an operation that failed."""
    _log.info("operation %s of %s: %s", operation.id, operation.task_id, error.brief)
    return OperationAnswer(
        operation_id=operation.id,
        task_id=operation.task_id,
        epoch=operation.epoch,
        worker=worker,
        error=OperationError.model_validate(error.payload()["error"]),
    )


def _no_publisher_error(operation: TaskOperation) -> SandboxError:
    return SandboxError(
        ErrorCode.POLICY_VIOLATION,
        f"A worker does not carry out '{operation.name}' on {operation.task_id}",
        details="Workers have no credentials of a forge.",
        hint="Ask through a dispatcher; a controller with cluster.role = 'publish' carries it out (docs/cluster.md).",
    )
