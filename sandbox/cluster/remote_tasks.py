"""Tasks of the cluster: their life, and the commits that they are at."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from sandbox.cluster.answers import unreadable_answer_error
from sandbox.cluster.asked_operations import read_value
from sandbox.cluster.connecting import find_requirements
from sandbox.cluster.dispatcher import PlacementTerms, draw_task_id
from sandbox.cluster.elsewhere import TasksElsewhere, bind_state, elsewhere, not_on_cluster_error
from sandbox.cluster.windows import SnapshotBase
from sandbox.errors import ErrorCode, SandboxError, describe_briefly
from sandbox.models import (
    CheckoutResult,
    CleanResult,
    CommitResult,
    ConflictResolution,
    Remark,
    RestoreResult,
    Snapshot,
    SyncResult,
    SyncState,
    Task,
    TaskOptions,
    TaskPlace,
    TaskStatus,
)
from sandbox.models.operations import OperationName, TaskOperation
from sandbox.store import placed_tasks, terminal_task
from sandbox.store.task_table import TaskRow
from sandbox.workbench.approvals.chosen_profile import MOVING
from sandbox.workbench.approvals.question import CREATING, FORKING
from sandbox.workbench.tasks.approved_state import is_choice_alone
from sandbox.workbench.tasks.branch_names import require_branch_words


class RemoteTasks(TasksElsewhere):
    """Methods of `ClusterWorkbench`."""

    def create_task(
        self,
        repo_id: str,
        prompt: str = "",
        base_branch: str | None = None,
        *,
        from_snapshot: str | None = None,
        options: TaskOptions | None = None,
        fetch: bool = False,
    ) -> Task:
        """Place a task on a worker, which fetches what is new in any case. After an interrupt there is no task, or the
        error says which one there may be. From a snapshot of a task of the cluster it is a fork, on the worker that has
        that one; from any other it is a task of this home.
        """
        chosen = options or TaskOptions()
        if from_snapshot is not None:
            origin = self._find_origin(repo_id, from_snapshot)
            if origin is not None and base_branch is None:
                return self._create_from_snapshot(origin, from_snapshot, prompt, chosen)
            return super().create_task(
                repo_id, prompt, base_branch, from_snapshot=from_snapshot, options=options, fetch=fetch
            )
        url, task_id = self.repository(repo_id).remote_url, draw_task_id()
        arguments = {"prompt": prompt, "base_branch": base_branch, "profile": chosen.profile}
        create = TaskOperation(id="create", task_id=task_id, name=OperationName.CREATE)
        if chosen.workspace_kind != TaskOptions().workspace_kind:  # a worker of an earlier version does not know it
            arguments["workspace_kind"] = chosen.workspace_kind
        if chosen.branch is not None:
            arguments["branch"] = require_branch_words(chosen.branch)
        if chosen.expected_choice is not None:  # one that would not compare it refuses the operation
            arguments["expected_choice"] = chosen.expected_choice
        required = find_requirements(self, url, chosen.profile, {})
        dispatcher = self._asked.dispatcher  # an interrupt until here leaves no task
        try:
            placed = dispatcher.place(url, arguments, task_id, PlacementTerms(requirements=required))
        except KeyboardInterrupt:
            self._undo_creation(create, task_id)
            raise
        except SandboxError as error:
            raise self._leave_line(create, task_id, error) from error
        return self._keep_placed(read_value(placed, Task), task_id, repo_id)

    def tasks(self, repo_id: str | None = None) -> tuple[Task, ...]:
        """Those of this home, and those that it placed on the cluster, as they were at their last commit."""
        found = placed_tasks.list_placed_tasks(self._services.home)
        placed = tuple(task for task in found if repo_id in {None, task.repo_id} and self.is_elsewhere(task.id))
        return (*super().tasks(repo_id), *placed)

    def task_lines(self, repo_id: str | None = None) -> tuple[TaskRow, ...]:
        """The fields of `tasks` that a table shows."""
        placed = (task for task in self.tasks(repo_id) if self.is_elsewhere(task.id))
        rows = (TaskRow(task.id, task.status, task.repo_id, task.prompt, task.created_at) for task in placed)
        return (*super().task_lines(repo_id), *rows)

    def places(self, task_ids: Sequence[str]) -> Mapping[str, TaskPlace]:
        """As in `Workbench`, also if the server does not answer."""
        asked = [task_id for task_id in task_ids if self.is_elsewhere(task_id)]
        return self._asked.places(asked) if asked else {}

    @elsewhere
    def task(self, task_id: str) -> Task:
        """As it was at its last commit. Raises: `invalid_input` if another home placed it."""
        found = placed_tasks.find_placed_task(self._services.home, task_id)
        if found is None:
            raise not_on_cluster_error("task", task_id)
        return found

    @elsewhere
    def use_task(self, task_id: str) -> Task:
        """As in `Workbench`. Raises: `invalid_input` if another home placed it."""
        found = self.task(task_id)
        terminal_task.remember_task(self._services.home, found.id)
        return found

    @elsewhere
    def find_local_branch(self, task_id: str) -> str | None:
        """This home has no branch of it."""
        return None

    @elsewhere
    def advice(self, owner_id: str) -> tuple[Remark, ...]:
        """Remarks come from runs in this home."""
        return ()

    @elsewhere
    def commit(
        self, task_id: str, message: str, allow: Sequence[str] = (), *, expected_tree: str | None = None
    ) -> CommitResult:
        """As in `Workbench`."""
        arguments = {"message": message, "allow": list(allow), "expected_tree": expected_tree}
        made = self._asked.ask(task_id, OperationName.COMMIT, arguments, CommitResult)
        self._note_task(task_id, {"head_commit": made.commit, "status": TaskStatus.COMMITTED})
        return made

    @elsewhere
    def snapshot(self, task_id: str, label: str = "") -> Snapshot:
        """As in `Workbench`."""
        taken = self._asked.ask(task_id, OperationName.SNAPSHOT, {"label": label}, Snapshot)
        self._note_snapshots(task_id, taken)
        return taken

    @elsewhere
    def snapshots(self, task_id: str) -> tuple[Snapshot, ...]:
        """As in `Workbench`: those that were made on the worker that has the task."""
        found = self._asked.ask(task_id, OperationName.LIST_SNAPSHOTS, {}, tuple[Snapshot, ...])
        self._note_snapshots(task_id, *found)
        return found

    @elsewhere
    def snapshot_base(self, task_id: str, snapshot: str) -> str:
        """As in `Workbench`. Raises: also `invalid_input` for a worker of an earlier version, which does not say it."""
        return self._asked.ask(task_id, OperationName.CLEAN_STATE, {"snapshot": snapshot}, SnapshotBase).base

    @elsewhere
    def restore(self, task_id: str, snapshot: str, *, expected_tree: str | None = None) -> RestoreResult:
        """As in `Workbench`."""
        arguments = {"snapshot": snapshot, "expected_tree": expected_tree}
        done = self._asked.ask(task_id, OperationName.RESTORE, arguments, RestoreResult)
        self._note_snapshots(task_id, done.previous)
        return done

    @elsewhere
    def clean_task(
        self, task_id: str, without: Sequence[str] = (), *, discard: bool = False, expected_commit: str | None = None
    ) -> CleanResult:
        """As in `Workbench`."""
        arguments = {"without": list(without), "discard": discard, "expected_commit": expected_commit}
        done = self._asked.ask(task_id, OperationName.CLEAN, arguments, CleanResult)
        self._note_snapshots(task_id, done.previous)
        return done

    @elsewhere
    def sync_task(
        self,
        task_id: str,
        onto: str | None = None,
        resolutions: Sequence[ConflictResolution] = (),
        *,
        fetch: bool = False,
        expected_tree: str | None = None,
    ) -> SyncResult:
        """As in `Workbench`. `fetch`: by the worker."""
        arguments = {
            "onto": onto,
            "resolutions": [answer.model_dump(mode="json") for answer in resolutions],
            "fetch": fetch,
            "expected_tree": expected_tree,
        }
        done = self._asked.ask(task_id, OperationName.SYNC, arguments, SyncResult)
        self._note_snapshots(task_id, done.previous)
        if done.state is SyncState.SYNCED:
            update: dict[str, object] = {"head_commit": done.head_commit, "base_commit": done.base_commit}
            if done.head_commit != done.base_commit:
                update["status"] = TaskStatus.COMMITTED
            self._note_task(task_id, update)
        return done

    @elsewhere
    def checkout_task(
        self,
        task_id: str,
        ref: str,
        *,
        fetch: bool = False,
        expected_tree: str | None = None,
        published: bool = True,
    ) -> CheckoutResult:
        """As in `Workbench`. `fetch`: by the worker. It goes to published commits only, whatever `published` says."""
        arguments = {"ref": ref, "fetch": fetch, "expected_tree": expected_tree}
        done = self._asked.ask(task_id, OperationName.CHECKOUT, arguments, CheckoutResult)
        self._note_snapshots(task_id, done.previous)
        update = {
            "head_commit": done.head_commit,
            "base_commit": done.base_commit,
            "base_branch": done.base_branch,
        }
        self._note_task(task_id, update)
        return done

    @elsewhere
    def fork_task(
        self,
        task_id: str,
        snapshot: str | None = None,
        prompt: str | None = None,
        *,
        with_artifacts: bool = False,
        expected_tree: str | None = None,
    ) -> Task:
        """As in `Workbench`, on the worker that has the task. After an interrupt as `create_task`."""
        if snapshot is None and expected_tree is not None and is_choice_alone(expected_tree):
            expected_tree = None  # its worker is of an earlier version
        wanted = {"snapshot": snapshot, "prompt": prompt, "with_artifacts": with_artifacts}
        return self._make_fork(task_id, bind_state(wanted, expected_tree))

    def inherited_profile(self, tool: str, arguments: Mapping[str, Any]) -> str | None:
        """As in `Workbench`: of a task of the cluster as it was when this home placed it. Raises: also `invalid_input`
        for a fork of a task that another home placed, and for another base of a task with a chosen profile.
        """
        if tool in MOVING:
            task_id = self.complete_owner(arguments["task_id"]) if "task_id" in arguments else ""
            if self.is_elsewhere(task_id):
                self._require_no_chosen_profile(task_id)
                return None
        if tool == FORKING:
            task_id = self.complete_owner(arguments["task_id"]) if "task_id" in arguments else ""
            if self.is_elsewhere(task_id):
                return self.task(task_id).profile
        snapshot = arguments.get("from_snapshot")
        if tool == CREATING and snapshot is not None and arguments.get("profile") is None:
            origin = self._find_origin(arguments["repo_id"], snapshot)
            if origin is not None:
                return origin.profile
        return super().inherited_profile(tool, arguments)

    def _require_no_chosen_profile(self, task_id: str) -> None:
        """What the profile changes at another base, this home cannot show: its clone is not the worker's."""
        if (chosen := self.task(task_id).profile) is not None:
            raise SandboxError(
                ErrorCode.INVALID_INPUT,
                f"An agent cannot take {task_id} to another base: the profile {chosen} was chosen for it",
                hint="Create a task there with this profile: a person is asked about it. Or a person syncs this one.",
            )

    def _create_from_snapshot(self, origin: Task, snapshot: str, prompt: str, options: TaskOptions) -> Task:
        if options.profile is not None:
            url = self.repository(origin.repo_id).remote_url
            required, has = (find_requirements(self, url, name, {}) for name in (options.profile, origin.profile))
            if required.items() - has.items():
                raise _fixed_requirements_error(options.profile, required)
        given = options.model_dump(mode="json", exclude_defaults=True)
        if options.expected_choice is not None:  # the journal leaves it out; a worker that does not know it refuses
            given["expected_choice"] = options.expected_choice
        return self._make_fork(origin.id, {"snapshot": snapshot, "prompt": prompt, "options": given})

    def _make_fork(self, task_id: str, wanted: Mapping[str, Any]) -> Task:
        """`wanted`: its arguments but for the id of the fork."""
        fork_id, dispatcher = draw_task_id(), self._asked.dispatcher
        arguments = {"fork_id": fork_id, **wanted}
        fork = TaskOperation(id=uuid.uuid4().hex, task_id=task_id, name=OperationName.FORK, arguments=arguments)
        try:
            dispatcher.submit(fork, is_new=True)
            made = self._asked.finish(fork, Task)
        except KeyboardInterrupt:
            self._undo_creation(fork, fork_id)
            raise
        except SandboxError as error:
            raise self._leave_line(fork, fork_id, error) from error
        known = placed_tasks.find_placed_task(self._services.home, task_id)
        return self._keep_placed(made, fork_id, known.repo_id if known else made.repo_id)

    @elsewhere
    def close_task(
        self, task_id: str, *, delete_worktree: bool = False, discard: bool = False, expected_tree: str | None = None
    ) -> Task:
        """As in `Workbench`. Its checks are not stopped first: it waits for them."""
        arguments = bind_state({"delete_worktree": delete_worktree, "discard": discard}, expected_tree)
        closed = self._asked.ask(task_id, OperationName.CLOSE, arguments, Task)
        placed_tasks.forget_placed_task(self._services.home, task_id)
        return closed.model_copy(update={"worktree_path": None})

    def _note_snapshots(self, task_id: str, *snapshots: Snapshot | None) -> None:
        """Remember that the task has these, so that one can be named alone."""
        known = [snapshot.id for snapshot in snapshots if snapshot is not None]
        placed_tasks.note_snapshots(self._services.home, task_id, known)

    def _leave_line(self, create: TaskOperation, task_id: str, error: SandboxError) -> SandboxError:
        """The error of a creation. One that waits in the line leaves it: no record would say what it makes there."""
        if error.reason != "cluster_busy":
            return error
        self._undo_creation(create, task_id)
        made = "fork" if create.name is OperationName.FORK else "task"
        return error.with_changes(
            brief=f"All workers of the cluster are busy; the {made} was not created",
            hint="Ask again later. "
            f"`sandbox cluster {'create' if made == 'task' else 'ask TASK fork'}` keeps a place in the line.",
        )

    def _undo_creation(self, create: TaskOperation, task_id: str) -> None:
        """Close the task that an operation makes and no caller would know, when that has ended.

        Raises: `conflict` (`reason`: `creation_interrupted`) if that fails, or is interrupted.
        """
        try:
            dispatcher = self._asked.dispatcher
            dispatcher.cancel(create)
            created = dispatcher.result(create)
            if created is not None and created.error is None:
                arguments = {"delete_worktree": True, "discard": True}
                self._asked.ask(task_id, OperationName.CLOSE, arguments, Task)
        except (SandboxError, KeyboardInterrupt) as error:
            if isinstance(error, SandboxError) and (error.reason == "cancelled" or error.code is ErrorCode.NOT_FOUND):
                return  # no worker had begun, or had been asked
            raise _unfinished_creation_error(task_id, error) from error

    def _note_task(self, task_id: str, update: Mapping[str, object]) -> None:
        """Change what this home knows of a task that it placed."""
        if (known := placed_tasks.find_placed_task(self._services.home, task_id)) is not None:
            placed_tasks.save_placed_task(self._services.home, known.model_copy(update=dict(update)))

    def _keep_placed(self, made: Task, task_id: str, repo_id: str) -> Task:
        """Remember a new task of the cluster. `made`: as a worker says, so ids are those that were asked for."""
        if made.id != task_id:  # it would take the place of another task's record
            raise unreadable_answer_error("a worker", f"It is about {made.id}.")
        task = made.model_copy(update={"repo_id": repo_id, "worktree_path": None})
        placed_tasks.save_placed_task(self._services.home, task)
        return task


def _fixed_requirements_error(profile: str, required: Mapping[str, str]) -> SandboxError:
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        f"A task from a snapshot stays on the worker that has it, and the profile {profile} requires something of one",
        details=", ".join(f"{key}={value}" for key, value in sorted(required.items())),
        hint="Leave out the profile, or create a task with it and apply the diff to the snapshot there.",
        reason="not_on_cluster",
    )


def _unfinished_creation_error(task_id: str, error: BaseException) -> SandboxError:
    return SandboxError(
        ErrorCode.CONFLICT,
        f"The creation of {task_id} was interrupted, and the cluster may have the task",
        details=describe_briefly(error),
        hint=f"`sandbox status {task_id}` shows it, `sandbox task close {task_id} --delete --discard` removes it.",
        reason="creation_interrupted",
        data={"task_id": task_id},
    )
