"""A controller with a cluster: operations on tasks that are not in this home go to the worker that has them.

Theory. Surfaces call a `Workbench`. This one has the same methods, and asks the dispatcher for those that a worker or
the controller that publishes can carry out. New tasks are placed on the cluster; repositories, images and settings are
those of this home. Each other method that takes a task refuses one of the cluster by name, so that no surface takes
silence for an answer. A task in this home is this home's, as before.
"""

from __future__ import annotations

import base64
import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial, wraps
from inspect import signature
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sandbox.cluster.asked_operations import AskedOperations, read_value
from sandbox.cluster.connecting import connect_dispatcher, find_requirements
from sandbox.cluster.dispatcher import draw_task_id, unreadable_answer_error
from sandbox.cluster.windows import MOST_ITEMS, Page, collect_pages
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import (
    TASK_ID_PATTERN,
    BackgroundOperation,
    BackgroundRun,
    Check,
    CheckoutResult,
    CheckRun,
    CleanResult,
    CommitResult,
    ConflictResolution,
    Diff,
    FileContent,
    JournalEntry,
    LogLines,
    LogQuery,
    PatchResult,
    PullRequest,
    PullRequestStatus,
    PushResult,
    Remark,
    RestoreResult,
    RunLog,
    SearchResult,
    Snapshot,
    Status,
    SyncResult,
    SyncState,
    Task,
    TaskOptions,
    TaskStatus,
    TestResults,
    UsageSeries,
    Verification,
)
from sandbox.models.explorations import Exploration
from sandbox.models.operations import OperationName, TaskOperation
from sandbox.store import placed_tasks
from sandbox.store.placed_tasks import PlacedRun
from sandbox.store.task_table import TaskRow
from sandbox.workbench import ExploreOptions, VerifyOptions, Watch, Workbench
from sandbox.workbench.approvals.question import CLEANING, SENDING

if TYPE_CHECKING:
    from sandbox.approvals import AgentCall
    from sandbox.models import SearchQuery

_ResultT = TypeVar("_ResultT")
_MethodT = TypeVar("_MethodT", bound=Callable[..., Any])
_ANYWHERE = frozenset({"complete_id", "create_named_task", "send_task_state", "end_task_state"})
"""Methods of workers, and those that only look at an id."""


@contextmanager
def distribute(workbench: Workbench) -> Iterator[Workbench]:
    """The same controller, which asks the cluster of its settings about tasks that are not here."""
    asked = AskedOperations(partial(connect_dispatcher, workbench))
    try:
        yield ClusterWorkbench(workbench, asked)
    finally:
        asked.close()


def _elsewhere(method: _MethodT) -> _MethodT:
    """The method is about tasks of the cluster; for one of this home, that of `Workbench` is called."""
    local = getattr(Workbench, method.__name__)

    @wraps(method)
    def call(self: ClusterWorkbench, owner: str, *args: Any, **kwargs: Any) -> Any:
        return (method if self.is_elsewhere(owner) else local)(self, owner, *args, **kwargs)

    return cast("_MethodT", call)


def _refuse_others(cls: type[ClusterWorkbench]) -> type[ClusterWorkbench]:
    """Give the class a method that refuses, for each method of `Workbench` that takes a task and is not its own."""
    for name, method in vars(Workbench).items():
        if name.startswith("_") or name in vars(cls) or name in _ANYWHERE or not isinstance(method, FunctionType):
            continue
        if [*signature(method).parameters][1:2] in (["task_id"], ["owner_id"], ["run_id"]):
            setattr(cls, name, _make_refusal(name, method))
    return cls


def _make_refusal(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: ClusterWorkbench, owner: str, *args: Any, **kwargs: Any) -> Any:
        if self.is_elsewhere(owner):
            raise _not_on_cluster_error(name, owner)
        try:
            return method(self, owner, *args, **kwargs)
        except SandboxError as error:
            if error.code is ErrorCode.NOT_FOUND and owner.startswith("run-"):  # it may be a run of a worker
                raise _not_on_cluster_error(name, owner) from error
            raise

    return call


@_refuse_others
class ClusterWorkbench(Workbench):
    """See the module. Made by `distribute`; `acting` copies it."""

    def __init__(self, workbench: Workbench, asked: AskedOperations) -> None:
        self.__dict__ = copy.copy(workbench.__dict__)
        self._asked = asked

    def is_elsewhere(self, owner: str) -> bool:
        """Whether this is the whole id of a task that this home does not have, or of a run that it asked for."""
        if re.fullmatch(TASK_ID_PATTERN, owner):
            return not self._services.home.task(owner).exists()
        home = self._services.home
        return bool(placed_tasks.find_placed_run(home, owner) or placed_tasks.find_task_of_run(home, owner))

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
            raise _not_on_cluster_error("create_task with a snapshot or a kind of workspace", repo_id)
        url, task_id = self.repository(repo_id).remote_url, draw_task_id()
        arguments = {"prompt": prompt, "base_branch": base_branch, "profile": chosen.profile}
        try:
            required = find_requirements(self, url, chosen.profile, {})
            placed = self._asked.dispatcher.place(url, arguments, task_id, requirements=required)
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

    @_elsewhere
    def task(self, task_id: str) -> Task:
        """As it was at its last commit. Raises: `invalid_input` if another home placed it."""
        found = placed_tasks.find_placed_task(self._services.home, task_id)
        if found is None:
            raise _not_on_cluster_error("task", task_id)
        return found

    @_elsewhere
    def use_task(self, task_id: str) -> Task:
        """Its id has to be given in full, so the home does not remember it."""
        return self.task(task_id)

    @_elsewhere
    def find_local_branch(self, task_id: str) -> str | None:
        """This home has no branch of it."""
        return None

    @_elsewhere
    def advice(self, owner_id: str) -> tuple[Remark, ...]:
        """Remarks come from runs in this home."""
        return ()

    @_elsewhere
    def read_file(
        self,
        task_id: str,
        path: str,
        start_line: int | None = None,
        end_line: int | None = None,
        *,
        max_bytes: int = 10 * 1024**2,
    ) -> FileContent:
        """As in `Workbench`, but for `max_bytes`: an answer of the cluster has a limit of its own."""
        arguments = {"path": path, "start_line": start_line, "end_line": end_line}
        return self._asked.ask(task_id, OperationName.READ_FILE, arguments, FileContent)

    @_elsewhere
    def search(self, task_id: str, query: SearchQuery) -> SearchResult:
        """As in `Workbench`."""
        return self._asked.ask(task_id, OperationName.SEARCH, query.model_dump(mode="json"), SearchResult)

    @_elsewhere
    def apply_patch(self, task_id: str, patch: bytes, expected_hashes: Mapping[str, str | None]) -> PatchResult:
        """As in `Workbench`."""
        arguments = {"patch": _encode(patch), "expected_hashes": dict(expected_hashes)}
        return self._asked.ask(task_id, OperationName.APPLY_PATCH, arguments, PatchResult)

    @_elsewhere
    def edit_file(
        self, task_id: str, path: str, old: str | bytes, new: str | bytes, expected_sha256: str
    ) -> PatchResult:
        """As in `Workbench`, for text."""
        arguments = {"path": path, "old": _to_text(old), "new": _to_text(new), "expected_sha256": expected_sha256}
        return self._asked.ask(task_id, OperationName.EDIT_FILE, arguments, PatchResult)

    @_elsewhere
    def write_file(
        self,
        task_id: str,
        path: str,
        content: str | bytes,
        expected_sha256: str | None,
        *,
        executable: bool | None = None,
    ) -> PatchResult:
        """As in `Workbench`."""
        arguments = {
            "path": path,
            "content": _encode(content),
            "expected_sha256": expected_sha256,
            "executable": executable,
        }
        return self._asked.ask(task_id, OperationName.WRITE_FILE, arguments, PatchResult)

    @_elsewhere
    def delete_file(self, task_id: str, path: str, expected_sha256: str) -> PatchResult:
        """As in `Workbench`."""
        arguments = {"path": path, "expected_sha256": expected_sha256}
        return self._asked.ask(task_id, OperationName.DELETE_FILE, arguments, PatchResult)

    @_elsewhere
    def rename_file(self, task_id: str, path: str, new_path: str, expected_sha256: str) -> PatchResult:
        """As in `Workbench`."""
        arguments = {"path": path, "new_path": new_path, "expected_sha256": expected_sha256}
        return self._asked.ask(task_id, OperationName.RENAME_FILE, arguments, PatchResult)

    @_elsewhere
    def status(self, task_id: str) -> Status:
        """As in `Workbench`."""
        return self._asked.ask(task_id, OperationName.STATUS, {}, Status)

    @_elsewhere
    def diff(self, task_id: str, against: str = "base") -> Diff:
        """As in `Workbench`."""
        return self._asked.ask(task_id, OperationName.DIFF, {"against": against}, Diff)

    @_elsewhere
    def checks(self, owner_id: str) -> tuple[Check, ...]:
        """As in `Workbench`."""
        return self._asked.ask(owner_id, OperationName.LIST_CHECKS, {}, tuple[Check, ...])

    @_elsewhere
    def run_checks(
        self,
        task_id: str,
        check_ids: Sequence[str],
        watch: Watch | None = None,
        *,
        runtime: str | None = None,
        arguments: Sequence[str] = (),
    ) -> tuple[CheckRun, ...]:
        """As in `Workbench`, without output while they run."""
        wanted = {"check_ids": list(check_ids), "runtime": runtime, "arguments": list(arguments)}
        return self._note_runs(task_id, self._asked.ask(task_id, OperationName.CHECK, wanted, tuple[CheckRun, ...]))

    @_elsewhere
    def start_checks(
        self,
        task_id: str,
        check_ids: Sequence[str],
        watch: Watch | None = None,
        *,
        runtime: str | None = None,
        arguments: Sequence[str] = (),
    ) -> BackgroundRun:
        """As in `Workbench`. The run continues when this process ends."""
        wanted = {"check_ids": list(check_ids), "runtime": runtime, "arguments": list(arguments)}
        return self._start(task_id, "check", wanted, tuple(check_ids))

    @_elsewhere
    def verify(self, task_id: str, watch: Watch | None = None, options: VerifyOptions | None = None) -> Verification:
        """As in `Workbench`, without output while the checks run, and with `cache`, `jobs`, `keep_going`, `runtime`."""
        found = self._asked.ask(task_id, OperationName.VERIFY, _choose_options(task_id, options), Verification)
        self._note_runs(task_id, found.runs)
        return found

    @_elsewhere
    def start_verify(
        self, task_id: str, watch: Watch | None = None, options: VerifyOptions | None = None
    ) -> BackgroundRun:
        """As `verify`, without waiting."""
        return self._start(task_id, "verify", _choose_options(task_id, options))

    @_elsewhere
    def candidate(
        self, owner_id: str, watch: Watch | None = None, options: VerifyOptions | None = None
    ) -> Verification:
        """As `verify`."""
        found = self._asked.ask(owner_id, OperationName.CANDIDATE, _choose_options(owner_id, options), Verification)
        self._note_runs(owner_id, found.runs)
        return found

    @_elsewhere
    def start_candidate(
        self, task_id: str, watch: Watch | None = None, options: VerifyOptions | None = None
    ) -> BackgroundRun:
        """As `candidate`, without waiting."""
        return self._start(task_id, "candidate", _choose_options(task_id, options))

    @_elsewhere
    def explore(
        self,
        task_id: str,
        patches: Mapping[str, bytes] | None = None,
        task_ids: Sequence[str] = (),
        watch: Watch | None = None,
        options: ExploreOptions | None = None,
    ) -> Exploration:
        """As in `Workbench`, without output while the checks run. Tasks are those on the same worker, as forks are."""
        wanted = _describe_exploration(patches or {}, task_ids, options or ExploreOptions())
        found = self._asked.ask(task_id, OperationName.EXPLORE, wanted, Exploration)
        return self._note_explored(task_id, found)

    @_elsewhere
    def start_exploration(
        self,
        task_id: str,
        patches: Mapping[str, bytes] | None = None,
        task_ids: Sequence[str] = (),
        watch: Watch | None = None,
        options: ExploreOptions | None = None,
    ) -> BackgroundRun:
        """As `explore`, without waiting."""
        wanted = _describe_exploration(patches or {}, task_ids, options or ExploreOptions())
        return self._start(task_id, "explore", wanted)

    @_elsewhere
    def wait_run(
        self, run_id: str, wait_s: float | None = None, *, cancelled: Callable[[], bool] | None = None
    ) -> BackgroundRun:
        """As in `Workbench`; `cancelled` does not end the wait."""
        return self._note_ended(self._asked.wait(self._find_run(run_id), wait_s))

    @_elsewhere
    def stop_run(self, run_id: str) -> BackgroundRun:
        """As in `Workbench`."""
        return self._note_ended(self._asked.stop(self._find_run(run_id)))

    @_elsewhere
    def runs(self, owner_id: str, most: int = 100) -> tuple[CheckRun, ...]:
        """As in `Workbench`: those on the worker that has the task."""
        found = self._collect(owner_id, OperationName.LIST_RUNS, CheckRun, most)
        return self._note_runs(owner_id, tuple(found))

    @_elsewhere
    def find_run(self, owner_id: str, run_id: str | None = None) -> str:
        """As in `Workbench`."""
        task_id, wanted = self._name_run(owner_id, run_id)
        found = self._asked.ask(task_id, OperationName.FIND_RUN, {"run_id": wanted}, str)
        placed_tasks.note_runs(self._services.home, task_id, [found])
        return found

    @_elsewhere
    def run_log(self, owner_id: str, run_id: str | None = None, stream: str = "stdout", *, raw: bool = False) -> RunLog:
        """As in `Workbench`; of a long log the beginning and the end."""
        task_id, wanted = self._name_run(owner_id, run_id)
        found = self._asked.ask(
            task_id, OperationName.RUN_LOG, {"run_id": wanted, "stream": stream, "raw": raw}, RunLog
        )
        placed_tasks.note_runs(self._services.home, task_id, [found.run_id])
        return found

    @_elsewhere
    def read_log(self, run_id: str, query: LogQuery | None = None) -> LogLines:
        """As in `Workbench`, at most `WINDOW_BYTES` of it."""
        asked = (query or LogQuery()).model_dump(mode="json")
        return self._ask_about_run(run_id, OperationName.READ_LOG, {"query": asked}, LogLines)

    @_elsewhere
    def test_results(
        self, run_id: str, *, failed_only: bool = False, cursor: int = 0, limit: int = 1000
    ) -> TestResults:
        """As in `Workbench`, with smaller pages."""
        page = {"failed_only": failed_only, "cursor": cursor, "limit": limit}
        return self._ask_about_run(run_id, OperationName.TEST_RESULTS, page, TestResults)

    @_elsewhere
    def usage(self, run_id: str) -> UsageSeries:
        """As in `Workbench`."""
        return self._ask_about_run(run_id, OperationName.USAGE, {}, UsageSeries)

    @_elsewhere
    def log(self, task_id: str, *, limit: int | None = 10_000) -> tuple[JournalEntry, ...]:
        """As in `Workbench`: what was done on the worker that has the task, at most the newest `MOST_ITEMS`."""
        found = self._collect(task_id, OperationName.JOURNAL, JournalEntry, limit or MOST_ITEMS)
        return tuple(found)[::-1]

    @_elsewhere
    def commit(
        self, task_id: str, message: str, allow: Sequence[str] = (), *, expected_tree: str | None = None
    ) -> CommitResult:
        """As in `Workbench`."""
        arguments = {"message": message, "allow": list(allow), "expected_tree": expected_tree}
        made = self._asked.ask(task_id, OperationName.COMMIT, arguments, CommitResult)
        self._note_task(task_id, {"head_commit": made.commit, "status": TaskStatus.COMMITTED})
        return made

    @_elsewhere
    def snapshot(self, task_id: str, label: str = "") -> Snapshot:
        """As in `Workbench`."""
        return self._asked.ask(task_id, OperationName.SNAPSHOT, {"label": label}, Snapshot)

    @_elsewhere
    def snapshots(self, task_id: str) -> tuple[Snapshot, ...]:
        """As in `Workbench`: those that were made on the worker that has the task."""
        return self._asked.ask(task_id, OperationName.LIST_SNAPSHOTS, {}, tuple[Snapshot, ...])

    @_elsewhere
    def restore(self, task_id: str, snapshot: str, *, expected_tree: str | None = None) -> RestoreResult:
        """As in `Workbench`."""
        arguments = {"snapshot": snapshot, "expected_tree": expected_tree}
        return self._asked.ask(task_id, OperationName.RESTORE, arguments, RestoreResult)

    @_elsewhere
    def clean_task(
        self, task_id: str, without: Sequence[str] = (), *, discard: bool = False, expected_commit: str | None = None
    ) -> CleanResult:
        """As in `Workbench`."""
        arguments = {"without": list(without), "discard": discard, "expected_commit": expected_commit}
        return self._asked.ask(task_id, OperationName.CLEAN, arguments, CleanResult)

    @_elsewhere
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

    @_elsewhere
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
        base = {"base_commit": done.base_commit, "base_branch": done.base_branch}
        self._note_task(task_id, {"head_commit": done.head_commit, **base})
        return done

    @_elsewhere
    def fork_task(
        self, task_id: str, snapshot: str | None = None, prompt: str | None = None, *, with_artifacts: bool = False
    ) -> Task:
        """As in `Workbench`, on the worker that has the task."""
        fork_id = draw_task_id()
        wanted = {"fork_id": fork_id, "snapshot": snapshot, "prompt": prompt, "with_artifacts": with_artifacts}
        made = self._asked.ask(task_id, OperationName.FORK, wanted, Task)
        known = placed_tasks.find_placed_task(self._services.home, task_id)
        return self._keep_placed(made, fork_id, known.repo_id if known else made.repo_id)

    @_elsewhere
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

    @_elsewhere
    def push(self, task_id: str, *, expected_commit: str | None = None) -> PushResult:
        """As in `Workbench`, by the controller that publishes: its gate and its approvals decide."""
        arguments = {"commit": self._find_commit(task_id, expected_commit)}
        return self._asked.ask(task_id, OperationName.PUSH, arguments, PushResult)

    @_elsewhere
    def open_pull_request(
        self, task_id: str, title: str = "", body: str = "", *, draft: bool = True, expected_commit: str | None = None
    ) -> PullRequest:
        """As `push`."""
        commit = self._find_commit(task_id, expected_commit)
        arguments = {"commit": commit, "title": title, "body": body, "draft": draft}
        return self._asked.ask(task_id, OperationName.OPEN_PR, arguments, PullRequest)

    @_elsewhere
    def pull_request_status(self, task_id: str) -> PullRequestStatus:
        """As in `Workbench`, by the controller that publishes."""
        return self._asked.ask(task_id, OperationName.PR_STATUS, {}, PullRequestStatus)

    def approval_call(self, tool: str, arguments: Mapping[str, Any]) -> AgentCall:
        """As in `Workbench`. Of a task of the cluster, what its worker says of it now is shown to the person, and is a
        part of what they approve.
        """
        task_id = arguments.get("task_id")
        if not isinstance(task_id, str) or not self.is_elsewhere(task_id):
            return super().approval_call(tool, arguments)
        rest = {name: value for name, value in arguments.items() if name != "task_id"}
        commit, uncommitted = self._describe_state(tool, task_id)
        shown = {"task_of_the_cluster": task_id, "commit": commit, "uncommitted": uncommitted}
        state = commit if tool == CLEANING else ""
        return replace(super().approval_call(tool, rest), arguments={**rest, **shown}, state=state)

    def needs_no_question(self, call: AgentCall) -> bool:
        """As in `Workbench`. The controller that publishes asks about a push of a task of the cluster."""
        if "task_of_the_cluster" in call.arguments:
            return call.tool in SENDING
        return super().needs_no_question(call)

    def _keep_placed(self, made: Task, task_id: str, repo_id: str) -> Task:
        """Remember a new task of the cluster. `made`: as a worker says, so ids are those that were asked for."""
        if made.id != task_id:  # it would take the place of another task's record
            raise unreadable_answer_error("a worker", f"It is about {made.id}.")
        task = made.model_copy(update={"repo_id": repo_id, "worktree_path": None})
        placed_tasks.save_placed_task(self._services.home, task)
        return task

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
        return found.head_commit, [change.model_dump(mode="json", exclude_none=True) for change in found.changes]

    def _note_task(self, task_id: str, update: Mapping[str, object]) -> None:
        """Change what this home knows of a task that it placed."""
        if (known := placed_tasks.find_placed_task(self._services.home, task_id)) is not None:
            placed_tasks.save_placed_task(self._services.home, known.model_copy(update=dict(update)))

    def _find_commit(self, task_id: str, expected: str | None) -> str:
        return expected or self.status(task_id).head_commit

    def _find_run(self, run_id: str) -> PlacedRun:
        found = placed_tasks.find_placed_run(self._services.home, run_id)
        if found is None:
            raise _not_on_cluster_error("waiting for a run that this home did not start", run_id)
        return found

    def _name_run(self, owner_id: str, run_id: str | None) -> tuple[str, str | None]:
        """The task and the run that are meant by an owner, which may be the id of a run."""
        home = self._services.home
        if run_id is None and (task_id := placed_tasks.find_task_of_run(home, owner_id)) is not None:
            return task_id, owner_id
        if run_id is None and (placed := placed_tasks.find_placed_run(home, owner_id)) is not None:
            return placed.task_id, self._find_last_run(placed)
        return owner_id, run_id

    def _find_last_run(self, placed: PlacedRun) -> str:
        """The run of a check that was asked for in the background; of several the last. Raises: `conflict`."""
        ended = self._note_ended(self._asked.wait(placed, 0.0))
        runs = [run.run_id for run in (ended.verification.runs if ended.verification else ended.runs)]
        runs += _list_runs_of_ways(ended.exploration) if ended.exploration else []
        if not runs:
            raise SandboxError(
                ErrorCode.CONFLICT,
                f"{placed.run_id} has not ended, and on a cluster its output can be read afterwards",
                hint=f"`sandbox check wait {placed.run_id}` waits.",
            )
        return runs[-1]

    def _ask_about_run(
        self, run_id: str, name: OperationName, arguments: Mapping[str, Any], kind: type[_ResultT]
    ) -> _ResultT:
        task_id, wanted = self._name_run(run_id, None)
        return self._asked.ask(task_id, name, {"run_id": wanted, **arguments}, kind)

    def _collect(self, task_id: str, name: OperationName, kind: type[_ResultT], limit: int) -> Iterator[_ResultT]:
        def ask(most: int, skip: int) -> Page:
            return self._asked.ask(task_id, name, {"limit": most, "skip": skip}, Page)

        return collect_pages(ask, kind, min(limit, MOST_ITEMS))

    def _note_runs(self, task_id: str, runs: tuple[CheckRun, ...]) -> tuple[CheckRun, ...]:
        placed_tasks.note_runs(self._services.home, task_id, [run.run_id for run in runs])
        return runs

    def _note_explored(self, task_id: str, found: Exploration) -> Exploration:
        placed_tasks.note_runs(self._services.home, task_id, _list_runs_of_ways(found))
        return found

    def _note_ended(self, ended: BackgroundRun) -> BackgroundRun:
        if ended.exploration is not None:
            self._note_explored(ended.task_id, ended.exploration)
        self._note_runs(ended.task_id, ended.verification.runs if ended.verification else ended.runs)
        return ended

    def _start(
        self,
        task_id: str,
        operation: BackgroundOperation,
        arguments: Mapping[str, Any],
        check_ids: tuple[str, ...] = (),
    ) -> BackgroundRun:
        run = PlacedRun(
            run_id=f"run-{self._services.presence.new_id()}",
            task_id=task_id,
            operation=operation,
            check_ids=check_ids,
            started_at=datetime.now(UTC),
        )
        placed_tasks.save_placed_run(self._services.home, run)
        self._asked.start(run, arguments)
        return BackgroundRun(**run.model_dump(exclude={"schema_version"}), state="running", elapsed_s=0.0)


def _choose_options(task_id: str, options: VerifyOptions | None) -> dict[str, Any]:
    """Raises: `invalid_input` for an option that workers do not take."""
    chosen, defaults = asdict(options or VerifyOptions()), asdict(VerifyOptions())
    taken = {"cache", "jobs", "keep_going", "runtime"}
    if others := [name for name, value in chosen.items() if name not in taken and value != defaults[name]]:
        raise _not_on_cluster_error(f"verify with {', '.join(others)}", task_id)
    return {name: chosen[name] for name in taken}


def _describe_exploration(
    patches: Mapping[str, bytes], task_ids: Sequence[str], options: ExploreOptions
) -> dict[str, Any]:
    return {
        "patches": {name: _encode(patch) for name, patch in patches.items()},
        "task_ids": list(task_ids),
        **asdict(options),
    }


def _list_runs_of_ways(found: Exploration) -> list[str]:
    return [run_id for way in found.ways for run_id in way.runs.values()]


def _encode(content: str | bytes) -> str:
    return base64.b64encode(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content).decode()


def _to_text(content: str | bytes) -> str:
    try:
        return content if isinstance(content, str) else content.decode()
    except UnicodeDecodeError as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT, "An edit on a cluster is text in UTF-8", hint="Write the whole file instead."
        ) from error


def _not_on_cluster_error(what: str, owner: str) -> SandboxError:
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        f"{what.replace('_', ' ')} is not carried out on a cluster, and {owner[:100]} is not in this home",
        hint="docs/cluster.md lists what is. Look for a typing error in the id if the task should be here.",
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
