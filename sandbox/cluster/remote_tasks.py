"""Tasks of the cluster: their life, and the commits that they are at."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from sandbox.cluster.answers import unreadable_answer_error
from sandbox.cluster.asked_operations import read_value
from sandbox.cluster.connecting import find_requirements
from sandbox.cluster.dispatcher import PlacementTerms, draw_task_id
from sandbox.cluster.elsewhere import TasksElsewhere, elsewhere, not_on_cluster_error
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import (
    CheckoutResult,
    CleanResult,
    CommitResult,
    ConflictResolution,
    PlaceState,
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

_PLACES_S = 5.0


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
        """Place a task on a worker, which fetches what is new in any case."""
        chosen = options or TaskOptions()
        if from_snapshot is not None or chosen.workspace_kind != TaskOptions().workspace_kind:
            raise _unplaceable_error("a snapshot" if from_snapshot is not None else "a kind of workspace")
        url, task_id = self.repository(repo_id).remote_url, draw_task_id()
        arguments = {"prompt": prompt, "base_branch": base_branch, "profile": chosen.profile}
        try:
            required = find_requirements(self, url, chosen.profile, {})
            placed = self._asked.dispatcher.place(url, arguments, task_id, PlacementTerms(requirements=required))
        except SandboxError as error:
            if error.reason == "cluster_busy":
                create = TaskOperation(id="create", task_id=task_id, name=OperationName.CREATE)
                self._asked.dispatcher.cancel(create)
                raise _busy_error(error) from error
            raise
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
        found = dict.fromkeys(asked, TaskPlace(state=PlaceState.UNKNOWN))

        def ask() -> None:
            with suppress(SandboxError):
                found.update(self._asked.dispatcher.places(asked))

        if asked:
            asking = threading.Thread(target=ask, name="places", daemon=True)
            asking.start()
            asking.join(_PLACES_S)
        return dict(found)

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
        return self._asked.ask(task_id, OperationName.SNAPSHOT, {"label": label}, Snapshot)

    @elsewhere
    def snapshots(self, task_id: str) -> tuple[Snapshot, ...]:
        """As in `Workbench`: those that were made on the worker that has the task."""
        return self._asked.ask(task_id, OperationName.LIST_SNAPSHOTS, {}, tuple[Snapshot, ...])

    @elsewhere
    def restore(self, task_id: str, snapshot: str, *, expected_tree: str | None = None) -> RestoreResult:
        """As in `Workbench`."""
        arguments = {"snapshot": snapshot, "expected_tree": expected_tree}
        return self._asked.ask(task_id, OperationName.RESTORE, arguments, RestoreResult)

    @elsewhere
    def clean_task(
        self, task_id: str, without: Sequence[str] = (), *, discard: bool = False, expected_commit: str | None = None
    ) -> CleanResult:
        """As in `Workbench`."""
        arguments = {"without": list(without), "discard": discard, "expected_commit": expected_commit}
        return self._asked.ask(task_id, OperationName.CLEAN, arguments, CleanResult)

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
        update = {
            "head_commit": done.head_commit,
            "base_commit": done.base_commit,
            "base_branch": done.base_branch,
        }
        self._note_task(task_id, update)
        return done

    @elsewhere
    def fork_task(
        self, task_id: str, snapshot: str | None = None, prompt: str | None = None, *, with_artifacts: bool = False
    ) -> Task:
        """As in `Workbench`, on the worker that has the task."""
        fork_id = draw_task_id()
        wanted = {"fork_id": fork_id, "snapshot": snapshot, "prompt": prompt, "with_artifacts": with_artifacts}
        made = self._asked.ask(task_id, OperationName.FORK, wanted, Task)
        known = placed_tasks.find_placed_task(self._services.home, task_id)
        return self._keep_placed(made, fork_id, known.repo_id if known else made.repo_id)

    @elsewhere
    def close_task(
        self, task_id: str, *, delete_worktree: bool = False, discard: bool = False, expected_tree: str | None = None
    ) -> Task:
        """As in `Workbench`. Its checks are not stopped first: it waits for them."""
        arguments: dict[str, Any] = {"delete_worktree": delete_worktree, "discard": discard}
        if expected_tree is not None:  # a worker of an earlier version does not know it, and refuses
            arguments["expected_tree"] = expected_tree
        closed = self._asked.ask(task_id, OperationName.CLOSE, arguments, Task)
        placed_tasks.forget_placed_task(self._services.home, task_id)
        return closed.model_copy(update={"worktree_path": None})

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


def _unplaceable_error(what: str) -> SandboxError:
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        f"A task of the cluster cannot be created with {what}",
        hint="A worker chooses the kind. Fork the task that has the snapshot: `sandbox task fork TASK --snapshot ID`.",
        reason="not_on_cluster",
    )


def _busy_error(error: SandboxError) -> SandboxError:
    """As the dispatcher's, for callers that cannot wait on: the task has left the line."""
    return SandboxError(
        error.code,
        "All workers of the cluster are busy; the task was not created",
        details=error.details,
        hint="Ask again later. `sandbox cluster create` keeps a place in the line.",
        reason=error.reason,
    )
