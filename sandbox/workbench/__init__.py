"""The use-cases: the only place where git, files, engine and store meet.

`Workbench` is the Python interface. Everything it takes and returns is a model or a plain value.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sandbox import models
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_module import LazyModule
from sandbox.models import Actor, ApprovalScope, ApprovalState
from sandbox.workbench import usecases as use
from sandbox.workbench.checks.callbacks import Watch
from sandbox.workbench.checks.verify_options import ExploreOptions, VerifyOptions, choose_options
from sandbox.workbench.controller.arguments import check_argument_types
from sandbox.workbench.controller.complete_ids import complete_ids
from sandbox.workbench.controller.operations_in_progress import count_operations
from sandbox.workbench.controller.services import Services, Surface, build_services

if TYPE_CHECKING:
    from sandbox import images
    from sandbox.approvals import AgentCall, DoneCall, OutdatedApproval
    from sandbox.config import Settings
    from sandbox.models import (
        ApplyResult,
        Approval,
        Artifact,
        ArtifactList,
        AttackReport,
        AuditRecord,
        AuditReport,
        BackgroundRun,
        Bisection,
        BisectQuery,
        Caller,
        Check,
        CheckoutResult,
        CheckRun,
        CleanResult,
        CloneResult,
        CommitResult,
        ConflictResolution,
        CredentialInfo,
        Diff,
        Exploration,
        FetchResult,
        FileContent,
        FlakyTest,
        FoundReceipts,
        GuestTable,
        HomeEvent,
        ImageArchive,
        ImageInfo,
        Impact,
        JournalEntry,
        LayerDetails,
        LayerSummary,
        LogLines,
        LogQuery,
        MeasuredStorage,
        PatchResult,
        Permission,
        PolicyAnswer,
        PolicyDifference,
        PolicyRule,
        Pool,
        PreparedLayers,
        Probe,
        ProfileCandidates,
        PullRequest,
        PullRequestStatus,
        PushedReceipt,
        PushResult,
        Receipt,
        ReceiptKey,
        ReceiptQuestion,
        Reconciliation,
        ReleaseState,
        Remark,
        RemovedLayers,
        RemoveResult,
        ReplayResult,
        RepoMap,
        Repository,
        RepositoryHistory,
        RepositoryUpdate,
        RestoreResult,
        Risk,
        RunLog,
        RunSummary,
        SearchQuery,
        SearchResult,
        SignedBundle,
        SignedReceipt,
        Snapshot,
        Status,
        StopResult,
        Storage,
        Suggestion,
        SyncResult,
        Task,
        TaskEvent,
        TaskOptions,
        TaskPlace,
        TestResults,
        UsageSeries,
        Verification,
        WorkspaceRecord,
        WorkspaceRequest,
    )
    from sandbox.models.exported_changes import ExportedChanges
    from sandbox.models.operations import DoneOperation, OperationAnswer, TaskOperation
    from sandbox.models.task_look import ReadUpTo, TaskLook
    from sandbox.models.workers import HostCapabilities
    from sandbox.policy.approvals import Decision
    from sandbox.profiles import Profile
    from sandbox.store import flaky_tests as flaky_records
    from sandbox.store import operation_answers, records, task_table, terminal_task
    from sandbox.store.task_table import TaskRow
    from sandbox.workbench import home_operations
    from sandbox.workbench.checks.explore import ExploreRequest
    from sandbox.workbench.checks.task_checks import TaskRun
    from sandbox.workbench.tasks.snapshots import ForkRequest
    from sandbox.workspaces import registry as workspace_registry
    from sandbox.workspaces.workspace import Workspace
else:  # loaded at their first use, as the use-cases are (docs/adr/0003)
    images = LazyModule("sandbox.images")
    flaky_records = LazyModule("sandbox.store.flaky_tests")
    task_table = LazyModule("sandbox.store.task_table")
    operation_answers = LazyModule("sandbox.store.operation_answers")
    records = LazyModule("sandbox.store.records")
    terminal_task = LazyModule("sandbox.store.terminal_task")
    home_operations = LazyModule("sandbox.workbench.home_operations")
    workspace_registry = LazyModule("sandbox.workspaces.registry")

__all__ = ["ExploreOptions", "VerifyOptions", "Watch", "Workbench"]


@count_operations
@complete_ids
@check_argument_types
class Workbench:
    """One controller on one home directory. Each method raises `SandboxError` with a stable code.

    `Raises` lists the codes that are specific to a method. Each method can also raise `invalid_input` (an argument of
    the wrong type, a mistake in the configuration or in an operator's file), `policy_violation` (a shipped policy that
    cannot be used), `quota_exceeded` (this host is out of disk space, memory or open files), `timeout` (a local git
    command or the engine is too slow) and `internal` (a damaged state file, a journal that cannot be written).

    Example::

        with Workbench() as workbench:
            summary = workbench.run("https://github.com/owner/name")
            print(summary.verified)

    The end of the `with` block is `close`.
    """

    def __init__(
        self,
        home: Path | str | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        settings: Mapping[str, Any] | None = None,
        allow_file: bool = False,
        progress: Callable[[str], None] | None = None,
        actor: Actor = Actor.PYTHON,
    ) -> None:
        """`home`: the default is that of the command line. `settings`: overrides, in the structure of config.toml.

        `allow_file`: local paths may be remotes. `progress`: called from another thread with lines about long
        transfers, which contain text of the remote, and about waits for another operation on a task. `actor`: who the
        journal names as the caller. Raises: `invalid_input` for an unusable home; `policy_violation` on a kernel
        without openat2.
        """
        environment = os.environ if environ is None else environ
        self._services = build_services(
            home,
            environment,
            settings,
            allow_file=allow_file,
            surface=Surface(
                progress, actor, on_killed_controller=lambda services: use.reconciling.clean_up_after_kill(services)
            ),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop background runs, and release what this controller uses.

        Operations of other threads go on, and it does not wait for them: the last one releases what they use. Raises:
        no specific code.
        """
        self._services.close()

    def acting(self, client: Caller | None = None, allowed: Permission | None = None) -> Workbench:
        """This controller, for one call of a client: the journal names the client, and how the call was allowed.

        Raises: no specific code.
        """
        twin = copy.copy(self)
        twin._services = self._services.for_call(client, allowed)
        return twin

    @property
    def caller(self) -> Caller:
        """The caller this controller works for: the user of this process, or the client given to `acting`."""
        return self._services.caller

    def end_network(self) -> None:
        """Abort all network git commands of this controller, now and in future; each raises `timeout`.

        Call it before shutting down. Raises: no specific code.
        """
        self._services.shutdown.set()

    @property
    def home(self) -> Path:
        """The directory of this controller's state."""
        return self._services.home.root

    @property
    def settings(self) -> Settings:
        """The configuration of this controller."""
        return self._services.settings

    @property
    def has_cluster(self) -> bool:
        """Whether the settings name a cluster. Raises: no specific code."""
        return self._services.has_settings and bool(self._services.settings.cluster.address)

    def take_losses(self, owner: str | None = None) -> tuple[str, ...]:
        """What tasks of a cluster lost with their workers, for people: of the answers since the last call. Empty in a
        home without a cluster. `owner`: the whole id of a task, or of a run of it; None: all tasks. Raises: no specific
        code.
        """
        return ()

    def places(self, task_ids: Sequence[str]) -> Mapping[str, TaskPlace]:
        """Where those of these tasks are that are on a cluster. Raises: no specific code."""
        return {}

    def clone(self, url: str, *, partial: bool = False) -> CloneResult:
        """Clone a remote into the cache, or fetch new commits of it, and describe it.

        `partial`: a new clone omits file contents until a task, fetch or run needs them. Raises: `invalid_input` for
        the URL; `auth_failed`, `remote_not_found`, `network_error`, `timeout`; `unsafe_repository`, `origin_mismatch`;
        `quota_exceeded`; `conflict` while another process holds the repository.
        """
        return home_operations.clone(self._services, url, partial=partial)

    def locate(self, url: str) -> str:
        """The URL of the repository that contains a directory of this host, searched upwards; any other URL unchanged.

        For a path given by a user: `clone`, `fetch` and `run` take exactly the given repository. Raises:
        `invalid_input`.
        """
        return use.clone.locate(self._services.remotes, url)

    def materialize(self, repo_id: str) -> Repository:
        """Fetch everything that a partial clone omitted.

        Raises: `not_found`; `auth_failed`, `remote_not_found`, `network_error`, `timeout`; `quota_exceeded`; `conflict`
        while another process holds the repository.
        """
        return home_operations.materialize(self._services, repo_id)

    def fetch(self, url: str, ref: str = "HEAD", subpath: str | None = None) -> FetchResult:
        """An immutable checkout of a ref, or of one directory of it, with its description.

        Raises: as `clone`; `not_found` for an unknown ref or directory; `unsafe_path` for `subpath`.
        """
        return home_operations.fetch(self._services, url, ref, subpath)

    def map(self, owner_id: str, token_budget: int = 1500, include_globs: Sequence[str] = ()) -> RepoMap:
        """The most relevant symbols of a repository, or of a task's last commit. ctags runs in a container.

        Raises: `not_found`; `invalid_input`; `conflict` for a closed task; `unsafe_repository`; `quota_exceeded`;
        `engine_unavailable`, `image_missing`, `policy_violation`, `timeout`.
        """
        return use.map.map_symbols(self._services, owner_id, token_budget, include_globs)

    def repositories(self) -> tuple[Repository, ...]:
        """All registered repositories; their settings have the projects of the configuration file, too.

        Raises: `unsafe_path` for a folder in the file.
        """
        return tuple(self._with_projects(one) for one in records.list_repositories(self._services.home))

    def repository(self, repo_id: str) -> Repository:
        """One repository; its settings have the projects of the configuration file, too.

        Raises: `not_found`; `unsafe_path` for a folder in the file.
        """
        return self._with_projects(records.find_repository(self._services.home, repo_id))

    def _with_projects(self, repository: Repository) -> Repository:
        settings = use.repository_settings.add_declared_projects(
            self._services.policies, repository.id, repository.settings
        )
        return repository.model_copy(update={"settings": settings})

    def update_repository(self, repo_id: str) -> RepositoryUpdate:
        """Fetch what is new of a registered repository; one request if all is known.

        Raises: `not_found`; as `clone`.
        """
        return home_operations.update_repository(self._services, repo_id)

    def update_repositories(self) -> tuple[RepositoryUpdate, ...]:
        """As `update_repository` for all of them; one that fails has its error in the answer.

        Raises: no specific code.
        """
        return home_operations.update_repositories(self._services)

    def fetched_at(self, repo_id: str) -> datetime | None:
        """When a repository was last compared with its remote; None if that is unknown. Raises: `not_found`."""
        records.find_repository(self._services.home, repo_id)
        return use.updates.find_fetch_time(self._services.home, repo_id)

    def set_repository(
        self, repo_id: str, values: Mapping[str, Any] | None = None, *, unset: Sequence[str] = ()
    ) -> Repository:
        """Give a repository settings (fields of `ChosenSettings`), and take back those in `unset`.

        `limits`, `env` and `projects` are merged by name; `unset` takes `profile`, `limits.NAME`, `projects.NAME.image`
        and the like.
        Raises: `not_found` for the repository, profile or folder; `invalid_input`; `policy_violation` for a limit above
        the ceiling or a protected variable; `unsafe_path` for `subpath`.
        """
        return self._with_projects(home_operations.set_repository(self._services, repo_id, values or {}, unset))

    def remove_repository(self, repo_id: str, *, discard: bool = False) -> RemoveResult:
        """Remove a repository and its cache clone; with `discard` also work that exists nowhere else.

        Raises: `not_found`; `conflict` while it has open tasks; `dirty_workspace` for unpushed or uncommitted work,
        unless `discard`; `engine_unavailable` when a guest of a task may still run.
        """
        return home_operations.remove(self._services, repo_id, discard=discard)

    def profiles(self) -> tuple[Profile, ...]:
        """All profiles, by name; a profile with a mistake in its file has a `problem`. Raises: no specific code."""
        return tuple(p for _, p in sorted(self._services.policies.profiles.items()))

    def profile(self, name: str) -> Profile:
        """One profile. Raises: `not_found`; `invalid_input` for a mistake in its file."""
        return use.repository_settings.find_profile(self._services.policies.profiles, name)

    def detect_profiles(self, url: str, ref: str = "HEAD") -> ProfileCandidates:
        """The profiles that a ref matches, with the evidence and what each would run; the first one is used.

        Reads the tree and runs nothing of it. Raises: as `clone`; `not_found` for an unknown ref.
        """
        return home_operations.detect_profiles(self._services, url, ref)

    def suggestion(self, repo_id: str) -> Suggestion:
        """The checks that a repository suggests, and whether they are used.

        Raises: `not_found`; `invalid_input` for a suggestion file that cannot be used; `quota_exceeded`.
        """
        return use.trust.read_suggestion(self._services, repo_id)

    def trust(self, repo_id: str, sha256: str, *, by: str) -> Suggestion:
        """Use the suggested checks of the file with this hash.

        Raises: `not_found`; `stale_hash` when the file has changed; `invalid_input`; `quota_exceeded`.
        """
        return home_operations.trust(self._services, repo_id, sha256, by)

    def distrust(self, repo_id: str) -> Suggestion:
        """Stop using the checks that a repository suggests.

        Raises: `not_found`; `invalid_input`; `quota_exceeded`.
        """
        return home_operations.distrust(self._services, repo_id)

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
        """A new task with its own branch and worktree; with `from_snapshot` it continues from that state.

        `from_snapshot`: the id of a snapshot of any task of the repository; it also determines the base branch.
        `options`: another profile than the repository's, words of the branch's name, or the workspace kind `tree`: no
        files on disk until a check needs them. `fetch`: first fetch what is new of the remote, as the command line and
        agents do. Raises: `invalid_input`, also for a kind or branch that a task cannot have, and when both a base and
        a snapshot are given; `not_found` for the repository, branch, snapshot or profile; `quota_exceeded`;
        `unsafe_repository`; with `fetch`, and in a partial clone, also `auth_failed`, `remote_not_found`,
        `network_error`, `timeout`; `conflict`.
        """
        arguments = {"repo_id": repo_id, "prompt": prompt, "base_branch": base_branch, "from_snapshot": from_snapshot}
        chosen = options or models.TaskOptions()
        use.lifecycle.require_possible_options(self._services, chosen)
        arguments |= chosen.model_dump(exclude_defaults=True)
        with use.journaling.record_operation(
            self._services, None, "create", arguments, names=[from_snapshot or ""]
        ) as done:
            if from_snapshot is None:
                if fetch:
                    use.updates.fetch_for_task(self._services, repo_id, f"sandbox task create {repo_id}")
                made = use.lifecycle.create_task(self._services, repo_id, prompt, base_branch, None, chosen)
                return done(self._require_approved_choice(made, chosen.expected_choice))
            if base_branch is not None:
                raise SandboxError(
                    ErrorCode.INVALID_INPUT,
                    "The snapshot already determines the base branch",
                    hint="Give either a base branch or a snapshot.",
                )
            made = use.snapshots.create_from_snapshot(self._services, repo_id, from_snapshot, prompt, chosen)
            return done(self._require_approved_choice(made, chosen.expected_choice))

    def _require_approved_choice(self, made: Task, approved: str | None) -> Task:
        """Only the new task says at which commit it begins. Without the approval none is left."""
        if approved is not None:
            try:
                use.chosen_profile.require_approved_choice(self._services, made, approved)
            except BaseException:
                use.lifecycle.close_task(self._services, made.id, delete=True, discard=True)
                raise
        return made

    def create_named_task(
        self,
        task_id: str,
        url: str,
        prompt: str = "",
        base_branch: str | None = None,
        *,
        options: TaskOptions | None = None,
    ) -> Task:
        """Clone or update a repository, and create a task under an id that was drawn elsewhere, by a dispatcher.

        Raises: as `clone` and `create_task`; `conflict` if there is a task of this id, or the chosen profile is
        not the one that was approved.
        """
        chosen = options or models.TaskOptions()
        arguments = {"url": self._services.remotes.parse(url).url, "prompt": prompt, "base_branch": base_branch}
        arguments |= chosen.model_dump(exclude_defaults=True)
        with use.journaling.record_operation(self._services, None, "create", arguments) as done:
            new = use.hub.NewTask(task_id, url, prompt, base_branch, chosen)
            made = use.hub.create_named_task(self._services, new)
            return done(self._require_approved_choice(made, chosen.expected_choice))

    @property
    def instance_id(self) -> str:
        """An id of this home that no other home has. Raises: no specific code."""
        return self._services.home.instance_id

    def answer_once(self, operation: TaskOperation, perform: Callable[[], OperationAnswer]) -> OperationAnswer:
        """The recorded answer of an operation of another process, or that of `perform`, called at most once for it. On
        a full disk, what frees space may use the reserve, also for its records.

        Raises: `conflict` for another operation of the same id; `internal` if the controller that carried it out was
        killed.
        """
        frees = operation.name in {"close", "clean"}
        with self._services.disk.use_reserve() if frees else nullcontext():
            return operation_answers.answer_once(self._services.home, operation, perform)

    def send_task_state(self, hub: str, task_id: str, epoch: int, done: DoneOperation | None = None) -> str:
        """Send a task's record and files to a hub, for another host to go on with; returns the commit there.
        `done`: the operation that made them.

        Raises: `not_found`; `conflict` (`reason`: `epoch_ended`) if another host has the task now; `invalid_input` for
        the hub; `push_rejected`, `auth_failed`, `remote_not_found`, `network_error`, `timeout`.
        """
        return use.hub.send_state(self._services, hub, task_id, epoch, done)

    def send_unsent_task_state(self, hub: str, task_id: str, epoch: int) -> None:
        """As `send_task_state`, if the state after the last operation did not reach the hub. Raises: as that."""
        use.hub.send_unsent_state(self._services, hub, task_id, epoch)

    def has_latest_state(self, hub: str, task_id: str) -> bool:
        """Whether this home has a task, and no other host continues it from the hub. Raises: as `send_task_state`."""
        return use.hub.has_latest_state(self._services, hub, task_id)

    def find_done_operation(self, task_id: str, epoch: int) -> DoneOperation | None:
        """The operation that made the state which this home took a task over from; None if the state records none.

        Raises: `conflict` (`reason`: `epoch_ended`) if this home has the task for another epoch; `invalid_input` for
        the id.
        """
        return use.hub.find_done(self._services.home, task_id, epoch)

    def give_up_unfinished_task(self, task_id: str, epoch: int) -> None:
        """Remove a task that this home was interrupted in creating, in an epoch before this one. For the operation that
        creates it again.

        Raises: `conflict` (`reason`: `task_exists`) if this home still works on it.
        """
        use.hub.give_up_unfinished(self._services, task_id, epoch)

    def begin_fork(self, fork_id: str, operation_id: str, epoch: int) -> None:
        """Note which operation makes a fork, in which epoch of its parent, and remove the one that the same operation
        left here when it was interrupted.

        Raises: `conflict` (`reason`: `task_exists`) if this home still works on it; `invalid_input` for the id.
        """
        use.hub.begin_fork(self._services, fork_id, operation_id, epoch)

    def end_task_state(self, hub: str, task_id: str, epoch: int, done: DoneOperation | None = None) -> None:
        """Delete what `send_task_state` sent: the task has ended. `done`: the operation that closed it, which the hub
        says for some days. Raises: as `send_task_state`.
        """
        use.hub.end_state(self._services, hub, task_id, epoch, done)

    def take_over_task(self, hub: str, url: str, task_id: str, epoch: int) -> Task:
        """Go on with a task of a lost host, from its last state in the hub. The lost host is refused from now on. What
        this home has of it from an earlier epoch is deleted, but for snapshots of files that were never committed.

        Raises: `not_found` if the hub has no state of it; `conflict` if this home has another task of this id, or
        another host goes on with it; `unsafe_repository` for a state that cannot be of this task; as `clone`.
        """
        arguments = {"hub": self._services.remotes.parse(hub).url, "epoch": epoch}
        with use.journaling.record_operation(self._services, None, "take-over", arguments, names=[task_id]) as done:
            return done(use.hub.take_over(self._services, hub, url, task_id, epoch))

    def import_task(self, hub: str, url: str, task_id: str, commit: str) -> Task:
        """Take a task's last commit from a hub, to push it from here. It becomes a task of this home, without files,
        and its gate counts verdicts of this home only.

        Raises: `not_found` if the hub has no state of it; `conflict` (`reason`: `state_moved`) if its last commit is
        another one than `commit`; `unsafe_path` for a changed path that an edit may not write; `unsafe_repository` for
        a state that cannot be of this task; as `clone`.
        """
        arguments = {"hub": self._services.remotes.parse(hub).url, "commit": commit}
        with use.journaling.record_operation(self._services, None, "import", arguments, names=[task_id]) as done:
            return done(use.imported_tasks.import_task(self._services, hub, url, task_id, commit))

    def tasks(self, repo_id: str | None = None) -> tuple[Task, ...]:
        """All tasks without spares, or those of one repository. Raises: `not_found` for the repository."""
        if repo_id is not None:
            records.find_repository(self._services.home, repo_id)
        found = records.list_tasks(self._services.home, repo_id)
        return tuple(task for task in found if task.status is not models.TaskStatus.SPARE)

    def task_lines(self, repo_id: str | None = None) -> tuple[TaskRow, ...]:
        """The fields of tasks that a table shows: as `tasks`, several times faster.

        Raises: `not_found` for the repository.
        """
        if repo_id is not None:
            records.find_repository(self._services.home, repo_id)
        return task_table.list_task_rows(self._services.home, repo_id)

    def task(self, task_id: str) -> Task:
        """One task, also a closed one. Raises: `not_found`."""
        return records.find_task(self._services.home, task_id, allow_closed=True)

    def use_task(self, task_id: str) -> Task:
        """Let `-` stand for this task, in the terminal or script of this process. Raises: `not_found`; `conflict` for a
        closed task.
        """
        found = records.find_task(self._services.home, task_id)
        terminal_task.remember_task(self._services.home, found.id)
        return found

    def read_file(
        self,
        task_id: str,
        path: str,
        start_line: int | None = None,
        end_line: int | None = None,
        *,
        max_bytes: int = 10 * 1024**2,
    ) -> FileContent:
        """A file of the task, or a range of its lines; at most `max_bytes` of them, then `truncated`.

        Raises: `not_found`; `conflict` for a closed task; `unsafe_path`; `invalid_input` for the range;
        `quota_exceeded` for a file that is too large to read.
        """
        return use.read.read_file(self._services, task_id, path, start_line, end_line, max_bytes)

    def read_committed_file(
        self,
        repo_id: str,
        path: str,
        start_line: int | None = None,
        end_line: int | None = None,
        *,
        ref: str = "HEAD",
        max_bytes: int = 10 * 1024**2,
    ) -> FileContent:
        """As `read_file`, from a fetched commit: no task is needed. `ref`: a branch, tag or commit id.

        Raises: `not_found`; `unsafe_path`; `invalid_input` for the range or ref; `quota_exceeded`.
        """
        return use.read.read_committed_file(self._services, repo_id, ref, path, (start_line, end_line), max_bytes)

    def search(self, task_id: str, query: SearchQuery) -> SearchResult:
        """Matching lines of the task's files, or paths for a glob alone. Reaching a limit is not an error.

        Raises: `not_found`; `conflict` for a closed task; `invalid_input` for the query; `quota_exceeded`.
        """
        return use.search.search(self._services, task_id, query)

    def search_commit(self, repo_id: str, query: SearchQuery, *, ref: str = "HEAD") -> SearchResult:
        """As `search`, in a fetched commit: no task is needed. `ref`: a branch, tag or commit id.

        Raises: `not_found`; `invalid_input` for the query or ref; `quota_exceeded`.
        """
        return use.search.search_commit(self._services, repo_id, ref, query)

    def complete_id(self, owner_id: str) -> str:
        """The whole id of a task or repository, from its beginning or name. Raises: `invalid_input`; `not_found`."""
        return owner_id

    def apply_patch(self, task_id: str, patch: bytes, expected_hashes: Mapping[str, str | None]) -> PatchResult:
        """Apply a unified diff; each file it changes needs the hash it was read with, None for a new file.

        Raises: `not_found`; `stale_hash`; `patch_rejected`; `unsafe_path`; `policy_violation`; `invalid_input`;
        `quota_exceeded`; `conflict` for a closed task or while another operation holds it; `engine_unavailable` when a
        guest of a killed process may still run.
        """
        arguments = {"patch": patch, "expected_hashes": dict(expected_hashes)}
        with use.journaling.record_operation(
            self._services, task_id, "patch", arguments, names=expected_hashes
        ) as done:
            return done(use.edit.patch_files(self._services, task_id, patch, expected_hashes))

    def edit_file(
        self, task_id: str, path: str, old: str | bytes, new: str | bytes, expected_sha256: str
    ) -> PatchResult:
        """Replace the only occurrence of `old`, exact bytes (text is UTF-8); no or several occurrences are
        `patch_rejected`.

        Raises: as `apply_patch`.
        """
        arguments = {"path": path, "old": old, "new": new, "expected_sha256": expected_sha256}
        with use.journaling.record_operation(self._services, task_id, "edit", arguments, names=[path]) as done:
            return done(use.edit.edit_file(self._services, task_id, path, old, new, expected_sha256))

    def write_file(
        self,
        task_id: str,
        path: str,
        content: str | bytes,
        expected_sha256: str | None,
        *,
        executable: bool | None = None,
    ) -> PatchResult:
        """Replace a whole file; without an expected hash, create a new one. `executable` None: unchanged.

        Raises: as `apply_patch`, except `patch_rejected`.
        """
        arguments = {"path": path, "content": content, "expected_sha256": expected_sha256, "executable": executable}
        with use.journaling.record_operation(self._services, task_id, "write", arguments, names=[path]) as done:
            return done(use.edit.write_file(self._services, task_id, path, content, expected_sha256, executable))

    def delete_file(self, task_id: str, path: str, expected_sha256: str) -> PatchResult:
        """Delete a file that has this hash.

        Raises: as `write_file`.
        """
        arguments = {"path": path, "expected_sha256": expected_sha256}
        with use.journaling.record_operation(self._services, task_id, "delete", arguments, names=[path]) as done:
            return done(use.edit.delete_file(self._services, task_id, path, expected_sha256))

    def rename_file(self, task_id: str, path: str, new_path: str, expected_sha256: str) -> PatchResult:
        """Give a file that has this hash another path, which must be free.

        Raises: as `apply_patch`.
        """
        arguments = {"path": path, "new_path": new_path, "expected_sha256": expected_sha256}
        names = [path, new_path]
        with use.journaling.record_operation(self._services, task_id, "rename", arguments, names=names) as done:
            return done(use.edit.move_file(self._services, task_id, path, new_path, expected_sha256))

    def base_hash(self, task_id: str, path: str) -> str | None:
        """Hash of a file in the task's last commit, None if the commit does not have it; the worktree is not read.

        Raises: `not_found`; `conflict` for a closed task; `unsafe_path`; `quota_exceeded`.
        """
        return use.edit.base_hash(self._services.home, self._services.repositories, task_id, path)

    def status(self, task_id: str) -> Status:
        """The changes of the task since its last commit.

        Raises: `not_found`; `conflict` for a closed task; `quota_exceeded`.
        """
        return use.status.read_status(self._services, task_id)

    def diff(self, task_id: str, against: str = "base") -> Diff:
        """The working state compared with the task's `base` or `head` commit.

        Raises: `not_found`; `invalid_input` for `against`; `conflict` for a closed task; `quota_exceeded`.
        """
        return use.status.diff_task(self._services, task_id, against)

    def impact(self, task_id: str) -> Impact:
        """When the changes of the task since its base take effect, by the classes of its profile, and the checks that
        they need.

        Raises: `not_found`; `conflict` for a closed task; `invalid_input` for a profile with a mistake;
        `quota_exceeded`.
        """
        return use.impact.read_impact(self._services, task_id)

    def checks(self, owner_id: str) -> tuple[Check, ...]:
        """Checks of a task or a repository.

        Raises: `not_found`; `conflict` for a closed task; `invalid_input` for a profile with a mistake;
        `quota_exceeded`.
        """
        return use.profile_checks.list_checks(self._services, owner_id)

    def launch_check(self, owner_id: str) -> Check | None:
        """The check that `candidate` runs last, which launches the application of a task or a repository and probes it;
        None if the profile has no `[launch]`.

        Raises: as `checks`.
        """
        return use.profile_checks.find_launch_check(self._services, owner_id)

    def advice(self, owner_id: str) -> tuple[Remark, ...]:
        """What was seen in a task's base or a repository's default branch that decides whether checks can run.

        Raises: as `checks`.
        """
        return use.seen_facts.advise_owner(self._services, owner_id)

    def run_checks(
        self,
        task_id: str,
        check_ids: Sequence[str],
        watch: Watch | None = None,
        *,
        runtime: str | None = None,
        arguments: Sequence[str] = (),
        expected_tree: str | None = None,
    ) -> tuple[CheckRun, ...]:
        """Run checks in the task's worktree, after the checks they require.

        `runtime`: engine runtime, instead of the profile's and the settings'. `arguments`: for the only named check, to
        run a part of it, as its `parameters` allow. `expected_tree`: refuse if the working state is a different tree.
        Raises: `not_found` for the task or a check; `invalid_input` when there is no check to run, and for arguments
        that it does not take; `conflict` for another working state, a closed task or while another operation holds it;
        `engine_unavailable`, `image_missing`, `policy_violation`, `timeout`; `unsafe_path` for a check's directory;
        `unsafe_repository` for a changed `.git` file; `quota_exceeded`.
        """
        with use.stop.stoppable(self._services.home, task_id, watch or Watch()) as heard:
            wanted = use.task_checks.TaskRun(arguments=arguments, expected_tree=expected_tree)
            return self._run_checks(task_id, check_ids, heard, self._services.with_runtime(runtime), wanted)

    def _run_checks(
        self,
        task_id: str,
        check_ids: Sequence[str],
        watch: Watch,
        services: Services,
        wanted: TaskRun,
    ) -> tuple[CheckRun, ...]:
        recorded = {"ids": list(check_ids), **({"arguments": list(wanted.arguments)} if wanted.arguments else {})}
        with use.journaling.record_operation(self._services, task_id, "check", recorded, names=check_ids) as done:
            return done(use.task_checks.run_checks(services, task_id, check_ids, watch, wanted))

    def start_checks(
        self,
        task_id: str,
        check_ids: Sequence[str],
        watch: Watch | None = None,
        *,
        runtime: str | None = None,
        arguments: Sequence[str] = (),
        expected_tree: str | None = None,
    ) -> BackgroundRun:
        """As `run_checks`, without waiting: the answer has the run id for `wait_run` and `stop_run`.

        If the same checks already run in the task, that run is returned, unless `expected_tree` is another state than
        that which it was asked about. `watch` is called from another thread. Leaving the `with` block of this workbench
        stops runs in progress, unless `wait_for_runs` is called first. `expected_tree`: fail (`conflict`) if the
        working state is a different tree. Raises: `quota_exceeded` for too many runs at once; the error of a run that
        fails at once, as `run_checks`.
        """
        options = {"runtime": runtime, "arguments": list(arguments)}
        question = use.background.Question("check", task_id, tuple(check_ids), options, expected_tree)
        services = self._services.with_runtime(runtime)
        return use.background.start(
            self._services,
            question,
            watch or Watch(),
            lambda heard, run_id: self._run_checks(
                task_id, check_ids, heard, services, use.task_checks.TaskRun(run_id, arguments, expected_tree)
            ),
        )

    def start_verify(
        self,
        task_id: str,
        watch: Watch | None = None,
        options: VerifyOptions | None = None,
        *,
        expected_tree: str | None = None,
    ) -> BackgroundRun:
        """As `verify`, without waiting; otherwise as `start_checks`.

        Raises: `quota_exceeded` for too many runs at once; the error of a run that fails at once, as `verify`.
        """
        how = choose_options("verify", options)
        question = use.background.Question("verify", task_id, (), asdict(how), expected_tree)
        return use.background.start(
            self._services,
            question,
            watch or Watch(),
            lambda heard, _run_id: self._verify(task_id, heard, how, expected_tree),
        )

    def wait_run(
        self, run_id: str, wait_s: float | None = None, *, cancelled: Callable[[], bool] | None = None
    ) -> BackgroundRun:
        """A background run once it has ended, or its state after `wait_s` seconds; None waits without limit.

        The run may belong to another process or an earlier session. `cancelled`: called four times a second, true ends
        the wait. Raises: `not_found`, also when the process of the run was killed; the error that ended the run.
        """
        return use.background.wait(self._services.home, self._services.background_threads, run_id, wait_s, cancelled)

    def wait_for_start(self, run_id: str) -> BackgroundRun:
        """A background run once its first check has begun, or it has ended; one of layers or several ways at once.

        Raises: as `wait_run`.
        """
        return use.background.wait_for_start(self._services.home, self._services.background_threads, run_id)

    def stop_run(self, run_id: str) -> BackgroundRun:
        """Stop a background run: its checks are recorded as `killed`. A run that has ended does not change.

        Raises: `not_found`; as `stop_checks`; the error that ended the run.
        """
        task_id = use.background.find_task_id(self._services.home, run_id)
        with use.journaling.record_operation(
            self._services, task_id, "stop", {"run_id": run_id}, names=[run_id]
        ) as done:
            return done(use.background.stop(self._services, run_id))

    def wait_for_runs(self) -> None:
        """Wait until all background runs that this workbench started have ended, at their deadlines at the latest.

        Raises: no specific code.
        """
        self._services.background_threads.wait_for_all()

    def stop_checks(self, task_id: str) -> StopResult:
        """Stop all checks that run or wait in a task, also in clean rooms and in other processes; returns the stopped
        checks.

        Raises: `not_found`; `timeout` when a process does not stop its checks; `engine_unavailable` when a guest of a
        dead process may still run; `conflict` while another operation holds the task.
        """
        with use.journaling.record_operation(self._services, task_id, "stop", {}) as done:
            return done(use.stop.stop_checks(self._services, task_id))

    def verify(
        self,
        task_id: str,
        watch: Watch | None = None,
        options: VerifyOptions | None = None,
        *,
        expected_tree: str | None = None,
    ) -> Verification:
        """Run all checks over the exact committed tree in clean rooms, or answer from cached verdicts.

        With `options.against` they also run on another tree, and both are compared. `expected_tree`: refuse if the
        working state is a different tree. Raises: `not_found`, also for `against`; `conflict` for another working state
        or a closed task; `invalid_input` when there is no check to run, or none to shuffle; `engine_unavailable`,
        `image_missing`, `policy_violation`, `timeout`; `unsafe_path` for a check's directory; `unsafe_repository`;
        `quota_exceeded`.
        """
        how = choose_options("verify", options)
        with use.stop.stoppable(self._services.home, task_id, watch or Watch()) as heard:
            return self._verify(task_id, heard, how, expected_tree)

    def explore(
        self,
        task_id: str,
        patches: Mapping[str, bytes] | None = None,
        task_ids: Sequence[str] = (),
        watch: Watch | None = None,
        options: ExploreOptions | None = None,
        *,
        expected_tree: str | None = None,
    ) -> Exploration:
        """Try several ways to change a task, verify each in clean rooms, rank them, and give the task the state of the
        best one that breaks no test. Every way is kept as a snapshot of the task.

        `patches`: unified diffs by name, for the working state. `task_ids`: tasks of the same repository and base.
        `expected_tree`: refuse (`conflict`) if the working state is a different tree. Raises: as `snapshot` and
        `verify`; `not_found` for a task; `invalid_input` for no way, too many ways, or a task of another repository or
        base.
        """
        asked = self._ask_to_explore(patches or {}, task_ids, options or ExploreOptions())
        with use.stop.stoppable(self._services.home, task_id, watch or Watch()) as heard:
            return self._explore(task_id, heard, asked, expected_tree)

    def start_exploration(
        self,
        task_id: str,
        patches: Mapping[str, bytes] | None = None,
        task_ids: Sequence[str] = (),
        watch: Watch | None = None,
        options: ExploreOptions | None = None,
        *,
        expected_tree: str | None = None,
    ) -> BackgroundRun:
        """As `explore`, without waiting; otherwise as `start_checks`. A run that explores other states is not returned.

        Raises: `quota_exceeded` for too many runs at once; the error of a run that fails at once, as `explore`.
        """
        asked = self._ask_to_explore(patches or {}, task_ids, options or ExploreOptions())
        trees = use.explore.find_trees(self._services, task_id, asked)
        wanted = {**use.explore.describe_request(asked), "trees": trees}
        question = use.background.Question("explore", task_id, (), wanted, expected_tree)
        return use.background.start(
            self._services,
            question,
            watch or Watch(),
            lambda heard, _run_id: self._explore(task_id, heard, asked, expected_tree or trees[task_id]),
        )

    def _ask_to_explore(
        self, patches: Mapping[str, bytes], task_ids: Sequence[str], options: ExploreOptions
    ) -> ExploreRequest:
        return use.explore.ExploreRequest(dict(patches), tuple(self.task(name).id for name in task_ids), options)

    def _explore(
        self, task_id: str, watch: Watch, asked: ExploreRequest, expected_tree: str | None = None
    ) -> Exploration:
        arguments = use.explore.describe_request(asked)
        names = [*asked.patches, *asked.task_ids]
        with use.journaling.record_operation(self._services, task_id, "explore", arguments, names=names) as done:
            return done(use.explore.explore(self._services, task_id, asked, watch, expected_tree))

    def _verify(
        self, task_id: str, watch: Watch, options: VerifyOptions, expected_tree: str | None = None
    ) -> Verification:
        with use.journaling.record_operation(self._services, task_id, "verify", {}) as done:
            if options.shuffle is not None:
                done.note(shuffle=str(options.shuffle))
            services = self._services.with_runtime(options.runtime)
            return done(use.verify.verify(services, task_id, watch, options, expected_tree))

    def candidate(
        self,
        owner_id: str,
        watch: Watch | None = None,
        options: VerifyOptions | None = None,
        *,
        expected_tree: str | None = None,
    ) -> Verification:
        """Build, launch and probe the application of a task's last commit, or of a repository's default branch, in one
        clean room, as `[launch]` of its profile says; or answer from cached verdicts.

        `expected_tree`: as for `verify`; of a repository always `not_found`, for it has no working state. Raises: as
        `verify`; `invalid_input` for a profile without `[launch]`.
        """
        how = choose_options("candidate", options)
        if not owner_id.startswith("task-"):
            return home_operations.launch_candidate(
                self._services.with_runtime(how.runtime), owner_id, watch or Watch(), how, expected_tree
            )
        with use.stop.stoppable(self._services.home, owner_id, watch or Watch()) as heard:
            return self._candidate(owner_id, heard, how, expected_tree)

    def _candidate(
        self, task_id: str, watch: Watch, options: VerifyOptions, expected_tree: str | None = None
    ) -> Verification:
        with use.journaling.record_operation(self._services, task_id, "candidate", {}) as done:
            services = self._services.with_runtime(options.runtime)
            return done(use.launch_candidate.launch_candidate(services, task_id, watch, options, expected_tree))

    def start_candidate(
        self,
        task_id: str,
        watch: Watch | None = None,
        options: VerifyOptions | None = None,
        *,
        expected_tree: str | None = None,
    ) -> BackgroundRun:
        """As `candidate` for a task, without waiting; otherwise as `start_checks`.

        Raises: `quota_exceeded` for too many runs at once; the error of a run that fails at once, as `candidate`.
        """
        how = choose_options("candidate", options)
        question = use.background.Question("candidate", task_id, (), asdict(how), expected_tree)
        return use.background.start(
            self._services,
            question,
            watch or Watch(),
            lambda heard, _run_id: self._candidate(task_id, heard, how, expected_tree),
        )

    def promote(
        self,
        owner_id: str,
        wait_s: float | None = None,
        *,
        expected_commit: str | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> ReleaseState:
        """Put the artifacts of a candidate that passed in use as a release of this host, and wait until the launcher of
        the application confirms it, or the deadline of the profile's `[promote]` is over and it is switched back; at
        most `wait_s` seconds. It is not started.

        Raises: `not_found`; `conflict` for a closed task, and while another promotion waits; `invalid_input` for a
        profile without `[launch]` and `[promote]`; `gate_closed` without a candidate of this tree that passed;
        `policy_violation` for artifacts that cannot be a release, and for libraries that this host lacks;
        `unsafe_path`, `stale_hash`, `engine_unavailable`, `image_missing`, `quota_exceeded`.
        """
        return home_operations.promote(self._services, owner_id, wait_s, expected_commit, cancelled or (lambda: False))

    def wait_release(
        self, owner_id: str, wait_s: float | None = None, *, cancelled: Callable[[], bool] | None = None
    ) -> ReleaseState:
        """The releases once none waits for its confirmation, or after `wait_s` seconds; None waits to its deadline.

        Raises: `not_found`; `conflict` while another process changes them.
        """
        return use.promote.wait_release(self._services, owner_id, wait_s, cancelled or (lambda: False))

    def confirm_release(self, owner_id: str) -> ReleaseState:
        """Confirm the release that waits for it, as the launcher of the application may do with a file.

        Raises: `not_found`, also when it was switched back before; `conflict`.
        """
        return home_operations.change_release(self._services, owner_id, "release-confirm")

    def roll_back_release(self, owner_id: str) -> ReleaseState:
        """Put the release before the one in use in use again; one that waits for its confirmation is switched back.

        Raises: `not_found` without one before; `conflict`.
        """
        return home_operations.change_release(self._services, owner_id, "release-rollback")

    def releases(self, owner_id: str) -> ReleaseState:
        """The releases of a repository, or of a task's: in use, before, waiting, history.

        Raises: `not_found`; `conflict` while another process changes them.
        """
        return use.promote.read_releases(self._services, owner_id)

    def run(
        self,
        url: str,
        ref: str = "HEAD",
        check_ids: Sequence[str] = (),
        profile: str | None = None,
        watch: Watch | None = None,
        options: VerifyOptions | None = None,
    ) -> RunSummary:
        """The main use-case: clone, check out, verify in clean rooms.

        Raises: as `clone` and `verify`; `not_found` for an unknown ref, check or profile; `invalid_input` for
        `include_changes` with a ref, or with a URL that is no directory, and for options of other requests.
        """
        how = choose_options("run", options)
        services = self._services.with_runtime(how.runtime)
        return home_operations.run(services, (url, ref), check_ids, profile, watch or Watch(), how)

    def bisect(
        self, repo_id: str, query: BisectQuery, watch: Watch | None = None, options: VerifyOptions | None = None
    ) -> Bisection:
        """The first commit after `query.good`, up to `query.bad`, on which a check fails, or one test of its results.

        `options.jobs`: how many commits are judged in parallel. Verdicts of known trees are used. Raises: `not_found`;
        `invalid_input` if `good` is not before `bad`, or either is not as it is called; `conflict` if it was
        cancelled; as `run`.
        """
        how = choose_options("bisect", options)
        services = self._services.with_runtime(how.runtime)
        return home_operations.bisect(services, repo_id, query, watch or Watch(), how)

    def history(self, repo_id: str, ref: str = "HEAD", limit: int = 20) -> RepositoryHistory:
        """The newest commits of a repository with the last run of each check on their trees. Runs no check.

        Raises: `not_found`; `invalid_input` for `limit`.
        """
        return use.commit_history.read_history(self._services, repo_id, ref, limit)

    def flaky_tests(self, repo_id: str) -> tuple[FlakyTest, ...]:
        """The tests of a repository that failed and passed on one tree, the last seen first. Raises: `not_found`."""
        records.find_repository(self._services.home, repo_id)
        return flaky_records.list_flaky_tests(self._services.home, repo_id)

    def forget_flaky_tests(self, repo_id: str, test: str | None = None) -> tuple[FlakyTest, ...]:
        """Forget a flaky test, or all of a repository; returns what is forgotten. Raises: `not_found`."""
        return home_operations.forget_flaky_tests(self._services, repo_id, test)

    def runs(self, owner_id: str, most: int = 100) -> tuple[CheckRun, ...]:
        """The last runs of a task's checks, or of a repository's (`run`), newest first; at most `most`.

        Raises: `not_found`; `invalid_input` for `most`.
        """
        return use.history.list_runs(self._services.home, owner_id, most)

    def run_log(self, owner_id: str, run_id: str | None = None, stream: str = "stdout", *, raw: bool = False) -> RunLog:
        """The output of a run on one stream, safe to show, or `raw` as base64; without `run_id`, of the newest run.

        Also while it runs, and if the process that ran it was killed.
        `stream`: also `service-NAME`, for all output of one of its services. `owner_id` may be the id of a run. Raises:
        `not_found`; `invalid_input` for `stream`.
        """
        return use.history.read_log(self._services.home, owner_id, run_id, stream, raw=raw)

    def find_run(self, owner_id: str, run_id: str | None = None) -> str:
        """Id of a run; without `run_id`, of the newest run of a task or a repository. Raises: `not_found`."""
        return use.history.find_run_id(self._services.home, owner_id, run_id)

    def past_run(self, run_id: str) -> CheckRun:
        """The record of a run of any task or repository.

        Raises: `not_found`, also if the process that ran it was killed; `conflict` while it runs.
        """
        return use.history.read_run(self._services.home, run_id)

    def read_log(self, run_id: str, query: LogQuery | None = None) -> LogLines:
        """Lines of one stream of a run, by number or by a pattern; by default the last ones. Also while it runs.

        Raises: `not_found`; `invalid_input` for the query.
        """
        return use.log_lines.read_lines(self._services, run_id, query)

    def test_results(
        self, run_id: str, *, failed_only: bool = False, cursor: int = 0, limit: int = 1000
    ) -> TestResults:
        """What the report of a run says of each test: a page of at most `limit`, from the `cursor`-th on.

        Raises: `not_found` for an unknown run, and for one without test results; `conflict` while it runs;
        `invalid_input` for the page.
        """
        return use.result_pages.read_test_results(
            self._services.home, run_id, failed_only=failed_only, cursor=cursor, limit=limit
        )

    def artifacts(self, run_id: str) -> ArtifactList:
        """The files of a run that its profile asked to keep. Raises: `not_found` for an unknown run."""
        return use.collected_artifacts.list_artifacts(self._services.home, run_id)

    def read_artifact(self, run_id: str, path: str) -> Iterator[bytes]:
        """The content of one artifact, in chunks; the last one comes only if all of it has the hash of the list.

        Raises: `not_found`; `internal` for a stored file that was changed.
        """
        return use.collected_artifacts.read_artifact(self._services.home, run_id, path)

    def share_artifact(self, run_id: str, path: str) -> tuple[str, ...]:
        """Put an artifact into the shared store for another home; the digests of its parts, none without
        `cache.artifacts` and `cache.write`.

        Raises: as `read_artifact`; `network_error` if the store cannot be written.
        """
        return use.shared_artifacts.share_artifact(self._services, run_id, path)

    def read_shared_artifact(self, artifact: Artifact, parts: Sequence[str]) -> Iterator[bytes]:
        """An artifact that another home put into the shared store, in chunks; the last one comes only if all of it has
        its hash.

        Raises: `invalid_input` without `cache.artifacts`; `network_error`; `internal` for other content.
        """
        return use.shared_artifacts.read_shared_artifact(self._services, artifact, parts)

    def usage(self, run_id: str) -> UsageSeries:
        """What a run used while it ran, at most four samples a second.

        Raises: `not_found` for an unknown run, and for one without samples; `conflict` while it runs.
        """
        return use.usage_over_time.read_usage(self._services.home, run_id)

    def guests(self, before: GuestTable | None = None) -> GuestTable:
        """The guests of this home with what they use of their limits. `before`: an earlier answer, for `cpus_used`.

        Raises: `engine_unavailable`; `conflict` when a stopped process blocks the run queue.
        """
        return use.guest_list.list_guests(self._services, before)

    def watch_task(self, task_id: str, poll_s: float = 0.25) -> Iterator[TaskEvent]:
        """What happens in a task from this call on, in any process: operations, checks with their output, verdicts.
        Ends when the task is closed; stop iterating to end it earlier. `poll_s`: time between two looks.

        Raises: `not_found`; `conflict` for a closed task.
        """
        return use.task_events.follow_task(self._services.home, task_id, poll_s)

    def look_at_task(self, task_id: str, poll_s: float = 0.25) -> Iterator[TaskEvent | None]:
        """As `watch_task`, and None after each look, so that a caller can end in between.

        Raises: `not_found`; `conflict` for a closed task.
        """
        return use.task_events.look_at_task(self._services.home, task_id, poll_s)

    def look_at_runs(self, task_id: str, places: Mapping[str, ReadUpTo]) -> TaskLook:
        """The checks that run in a task now, and what they printed since the last look; of much output the end.

        `places`: what the caller has of each run that it follows. Raises: `not_found`.
        """
        return use.look_at_runs.look_at_runs(self._services.home, task_id, places)

    def events(self, limit: int = 100) -> tuple[HomeEvent, ...]:
        """The newest events of this home, oldest first; fewer than `limit` if these have more than 2 MiB. Raises: no
        specific code.
        """
        return use.home_events.list_recent(self._services.home, limit)

    def events_after(self, event_id: str, limit: int = 1000) -> tuple[HomeEvent, ...]:
        """The events that a follower may have missed after this one, oldest first; of many the newest `limit`,
        and of these no more than have 2 MiB.

        Some that it has may be among them. Raises: no specific code.
        """
        return use.home_events.list_after(self._services.home, event_id, limit)

    def follow_events(self, poll_s: float = 0.5) -> Iterator[HomeEvent | None]:
        """What happens in this home from this call on, in any process. None is yielded after each look, every `poll_s`.

        Raises: no specific code.
        """
        return use.home_events.follow_home(self._services.home, poll_s)

    def commit(
        self, task_id: str, message: str, allow: Sequence[str] = (), *, expected_tree: str | None = None
    ) -> CommitResult:
        """Commit the working state on the task's branch. `allow`: new files or folders that look like build output.

        `expected_tree`: refuse to commit a different tree. Raises: `not_found`; `nothing_to_commit`; `invalid_input`
        for the message; `policy_violation` for files that must not be committed; `unsafe_path`; `conflict` for another
        tree, a closed task or while another operation holds it; `engine_unavailable` when a guest of a killed process
        may still run; `quota_exceeded`.
        """
        with use.journaling.record_operation(
            self._services, task_id, "commit", {"message": message, "allow": list(allow)}
        ) as done:
            return done(use.status.commit_task(self._services, task_id, message, allow, expected_tree))

    def snapshot(self, task_id: str, label: str = "") -> Snapshot:
        """Save the working state; if a snapshot of the same state exists, it is returned.

        Raises: `not_found`; `invalid_input` for the label; `conflict` for a closed task or while another operation
        holds it; `engine_unavailable` when a guest of a killed process may still run; `quota_exceeded`.
        """
        with use.journaling.record_operation(self._services, task_id, "snapshot", {"label": label}) as done:
            return done(use.snapshots.take_snapshot(self._services, task_id, label))

    def snapshots(self, task_id: str) -> tuple[Snapshot, ...]:
        """The task's snapshots, oldest first. Raises: `not_found`."""
        return use.snapshots.list_snapshots(self._services.home, self._services.repositories, task_id)

    def snapshot_base(self, task_id: str, snapshot: str) -> str:
        """The commit that a task which continues from a snapshot of this task is based on. Raises: `not_found`."""
        return use.snapshots.find_base_of_snapshot(self._services, self.task(task_id).repo_id, snapshot, task_id)

    def restore(self, task_id: str, snapshot: str, *, expected_tree: str | None = None) -> RestoreResult:
        """Make the worktree equal to a snapshot, or to the task's `head` or `base`; the previous state is saved.

        `expected_tree`: refuse if the working state is a different tree. Raises: as `snapshot`; `not_found` for the
        snapshot; `unsafe_path` for a path that cannot be written; `conflict` for another working state.
        """
        with use.journaling.record_operation(
            self._services, task_id, "restore", {"snapshot": snapshot}, names=[snapshot]
        ) as done:
            return done(use.snapshots.restore_state(self._services, task_id, snapshot, expected_tree))

    def clean_task(
        self, task_id: str, without: Sequence[str] = (), *, discard: bool = False, expected_commit: str | None = None
    ) -> CleanResult:
        """Delete everything that a commit would not include: build output, ignored files. Uncommitted changes are kept.

        `without`: new files or folders to delete as well. `discard`: delete all uncommitted changes.
        `expected_commit`: refuse if the task's last commit is a different one; or the `state` of `approval_call`, which
        adds a digest of what `without` deletes. Raises: `not_found`; `invalid_input` for `without`, also beside
        `discard`; `unsafe_path`; `quota_exceeded` when the changes cannot be saved; `conflict` for another commit or
        content, a closed task or while another operation holds it; `engine_unavailable` when the guest cannot be ended.
        """
        arguments = {"without": list(without), "discard": discard}
        with use.journaling.record_operation(self._services, task_id, "clean", arguments, names=without) as done:
            return done(
                use.clean.clean_task(self._services, task_id, without, discard=discard, expected_commit=expected_commit)
            )

    def sync_task(
        self,
        task_id: str,
        onto: str | None = None,
        resolutions: Sequence[ConflictResolution] = (),
        *,
        fetch: bool = False,
        expected_tree: str | None = None,
    ) -> SyncResult:
        """Merge a newer base into a task. A merge commit goes on top of its own commits; without any, the branch moves
        and uncommitted changes are merged, after a snapshot. With open conflicts nothing is changed.

        `onto`: a branch, which becomes the task's base branch, or a commit of its base branch, which is the default.
        `resolutions`: an answer to each conflict of the sync before. `fetch`: first fetch what is new of the remote.
        `expected_tree`: refuse if the working state is a different tree.
        Raises: `dirty_workspace` for uncommitted changes on top of own commits; `stale_hash` for an answer to another
        conflict; `conflict`, also for a file in the way or histories without a common commit; `not_found`;
        `invalid_input`; `unsafe_path`; with `fetch`, and in a partial clone, as `create_task`.
        """
        arguments = {"onto": onto, "resolutions": [answer.model_dump(mode="json") for answer in resolutions]}
        names = [onto or "", *(answer.path for answer in resolutions)]
        with use.journaling.record_operation(self._services, task_id, "sync", arguments, names=names) as done:
            if fetch:
                self._fetch_for(task_id, f"sandbox task sync {task_id}")
            choice = self._compare_choice(expected_tree)
            return done(use.sync.sync_task(self._services, task_id, onto, resolutions, expected_tree, choice))

    def checkout_task(
        self,
        task_id: str,
        ref: str,
        *,
        fetch: bool = False,
        expected_tree: str | None = None,
        published: bool = False,
    ) -> CheckoutResult:
        """Move a task without commits of its own to a branch, tag, commit or pull request (`pr/7`) of its repository.
        Uncommitted changes are saved as a snapshot and applied there.

        `published`: refuse a commit that no branch and no tag of the remote has, as workers of a cluster do.

        Raises: `conflict`, with the paths in `data`, if they do not apply, and for a task with own commits; otherwise
        as `sync_task`.
        """
        with use.journaling.record_operation(self._services, task_id, "checkout", {"ref": ref}, names=[ref]) as done:
            if fetch:
                self._fetch_for(task_id, f"sandbox task checkout {task_id} {ref}")
            choice = self._compare_choice(expected_tree)
            moved = use.sync.checkout_task(self._services, task_id, ref, expected_tree, choice, published=published)
            return done(moved)

    def _compare_choice(self, approved: str | None) -> Callable[[Task, str], None]:
        """Called before a task gets another base, with that commit. Raises: as `require_same_choice`."""

        def compare(task: Task, commit: str) -> None:
            if task.profile is not None:
                use.chosen_profile.require_same_choice(self._services, approved, task, commit)

        return compare

    def _fetch_for(self, task_id: str, command: str) -> None:
        repo_id = records.find_task(self._services.home, task_id).repo_id
        use.updates.fetch_for_task(self._services, repo_id, command)

    def apply_task(
        self, task_id: str, directory: Path | str, *, uncommitted: bool = False, dry_run: bool = False
    ) -> ApplyResult:
        """Write what a task's commits changed since its base into a person's own checkout: all files or none.

        `uncommitted`: apply the working state instead. `dry_run`: only say what would be written. Raises: `conflict`,
        with the paths in `data`, if the directory differs there from the task's base; `nothing_to_commit`;
        `invalid_input` for a directory that is no checkout; `unsafe_path`; `not_found`.
        """
        arguments = {"directory": str(directory), "uncommitted": uncommitted, "dry_run": dry_run}
        with use.journaling.record_operation(
            self._services, task_id, "apply", arguments, names=[str(Path(directory).absolute())]
        ) as done:
            return done(
                use.apply.apply_task(self._services, task_id, Path(directory), uncommitted=uncommitted, dry_run=dry_run)
            )

    def export_changes(self, task_id: str, *, uncommitted: bool = False) -> ExportedChanges:
        """What `apply_task` would write, as one document for another host.

        Raises: `nothing_to_commit`; `quota_exceeded` for more than 16 MiB or 10,000 files; `policy_violation` for a
        changed submodule; `not_found`; `conflict` for the working state of a closed task.
        """
        return use.change_export.export_changes(self._services, task_id, uncommitted=uncommitted)

    def apply_exported(
        self, task: Task, exported: ExportedChanges, directory: Path | str, *, dry_run: bool = False
    ) -> ApplyResult:
        """As `apply_task`, with the result of a task of another host, which is not trusted. `task`: what this home
        knows of it.

        Raises: as `apply_task`; `unsafe_path` also for a path that an edit may not write; `not_found` for an unknown
        base; `internal` for a document with another tree than it says; network errors.
        """
        arguments = {"directory": str(directory), "commit": exported.commit, "dry_run": dry_run}
        with use.journaling.record_operation(
            self._services, None, "apply", arguments, names=[task.id, str(Path(directory).absolute())]
        ) as done:
            return done(
                use.change_export.apply_exported(self._services, task, exported, Path(directory), dry_run=dry_run)
            )

    def fork_task(
        self,
        task_id: str,
        snapshot: str | None = None,
        prompt: str | None = None,
        *,
        with_artifacts: bool = False,
        expected_tree: str | None = None,
    ) -> Task:
        """A new task that continues from a snapshot, or from the current working state.

        `with_artifacts`: it also gets the build output that the profile ignores, with its times, so that its first
        check is incremental. `expected_tree`: refuse (`conflict`) if the working state is a different tree, which a
        snapshot does not depend on; or the `state` of `approval_call`, which also has what was approved of a profile.
        Raises: as `create_task` and `snapshot`; `not_found` for the snapshot; `invalid_input` for `with_artifacts` with
        a snapshot.
        """
        arguments: dict[str, object] = {"snapshot": snapshot, "prompt": prompt}
        if with_artifacts:
            arguments["with_artifacts"] = True
        with use.journaling.record_operation(
            self._services, task_id, "fork", arguments, names=[snapshot or ""]
        ) as done:
            wanted = use.snapshots.ForkRequest(snapshot, prompt, with_artifacts, expected_tree=expected_tree)
            made = use.snapshots.fork_task(self._services, task_id, wanted)
            return done(self._require_approved_choice(made, use.chosen_profile.find_approved_choice(expected_tree)))

    def fork_named_task(self, task_id: str, wanted: ForkRequest) -> Task:
        """As `fork_task`, under an id that was drawn elsewhere, by the caller of a dispatcher: `wanted.new_id`.
        `wanted.options`: instead of those of the task.

        Raises: as `fork_task`; `not_found` for the profile; `conflict` if there is a task of this id.
        """
        arguments: dict[str, object] = {
            "snapshot": wanted.snapshot,
            "prompt": wanted.prompt,
            "with_artifacts": wanted.with_artifacts,
        }
        if wanted.options is not None:
            arguments |= wanted.options.model_dump(exclude_defaults=True)
        with use.journaling.record_operation(
            self._services, task_id, "fork", arguments, names=[wanted.new_id, wanted.snapshot or ""]
        ) as done:
            made = use.hub.fork_named_task(self._services, task_id, wanted)
            approved = wanted.options.expected_choice if wanted.options is not None else None
            approved = approved or use.chosen_profile.find_approved_choice(wanted.expected_tree)
            return done(self._require_approved_choice(made, approved))

    def log(self, task_id: str, *, limit: int | None = 10_000) -> tuple[JournalEntry, ...]:
        """The journal of a task, oldest first, with refused operations. `limit`: only so many of the newest; None: all.

        Time and memory are those of the entries returned, 4 KB for each. To read a long journal as a stream, use
        `audit_export`. Raises: `not_found`.
        """
        return use.journaling.read_task_journal(self._services.home, task_id, limit)

    def push(self, task_id: str, *, expected_commit: str | None = None) -> PushResult:
        """Push the task's commit to its own branch, verified. `expected_commit`: refuse to push a different commit.

        Raises: `not_found`; `nothing_to_commit`; `gate_closed`, also for a branch with a ready pull request, or (reason
        `no_answer`) when the forge does not say whether it has one; `policy_violation` for the branch, or for a secret
        in its name or a commit message; `quota_exceeded` when the messages are too long to be searched; `conflict` for
        another commit, a closed task or while another operation holds it; `push_rejected`, `auth_failed`,
        `remote_not_found`, `network_error`, `timeout`; where the gate needs a verified tree also `engine_unavailable`,
        `image_missing`; `policy_violation` (reason `hooks_not_run`) for a local path with hooks that may decline it.
        """
        with use.journaling.record_operation(self._services, task_id, "push", {}) as done:
            return done(use.push.push(self._services, task_id, expected_commit, done.note_delivery))

    def open_pull_request(
        self, task_id: str, title: str = "", body: str = "", *, draft: bool = True, expected_commit: str | None = None
    ) -> PullRequest:
        """Push the task's commit and open a pull request for it, or update the existing one.

        `title`: if empty, that of the first commit. `body`: placed before the task's record. `expected_commit`: as for
        a push. Raises: as `push`; `forge_unsupported`, `forge_error`; `invalid_input` for a base that is not a branch
        or a text that is too long; `policy_violation` for a text with a secret.
        """
        arguments = {"title": title, "body": body, "draft": draft}
        with use.journaling.record_operation(self._services, task_id, "pr-open", arguments) as done:
            options = use.pull_requests.PullRequestOptions(title, body, draft)
            return done(
                use.pull_requests.open_pull_request(
                    self._services, task_id, options, expected_commit, done.note_delivery
                )
            )

    def pull_request_status(self, task_id: str) -> PullRequestStatus:
        """The task's pull request and the verdict of its checks upstream; the task's record is updated.

        Raises: `not_found`; `forge_unsupported`, `forge_error`; `auth_failed`, `network_error`, `timeout`.
        """
        return use.pull_requests.find_status(self._services, task_id)

    def follow_pull_request(
        self, task_id: str, announce: Callable[[PullRequestStatus], None] | None = None, timeout_s: float = 3600.0
    ) -> PullRequestStatus:
        """The status once it has a verdict. `announce`: called with each changed status. `timeout_s`: at most 30 days.

        Raises: `timeout`; `invalid_input` for `timeout_s`; as `pull_request_status`.
        """
        follower = use.follow.FollowOptions(announce or use.follow.ignore_status, timeout_s)
        return use.follow.follow(self._services, task_id, follower)

    def approval_decision(self, tool: str, risk: Risk) -> Decision:
        """The decision of the approval policy on an agent's tool. Raises: no specific code."""
        return self._services.policies.approvals.decide(tool, risk)

    def approval_call(self, tool: str, arguments: Mapping[str, Any]) -> AgentCall:
        """An agent's call with the state it would act on; `arguments` are validated JSON values.

        Raises: `not_found` for the task or repository; `invalid_input` for a URL; `quota_exceeded`.
        """
        inherited = self.inherited_profile(tool, arguments)
        given = arguments if inherited is None else {**arguments, "profile": inherited}
        return use.requests.build_call(self._services, tool, given)

    def inherited_profile(self, tool: str, arguments: Mapping[str, Any]) -> str | None:
        """The profile that the new task of an agent's call would have because it was chosen for the task from which it
        continues. None: it inherits none, or the call gives one.

        Raises: `not_found` for the task, repository or snapshot.
        """
        return use.chosen_profile.find_inherited_profile(self._services, tool, arguments)

    def needs_no_question(self, call: AgentCall) -> bool:
        """Whether a person need not be asked about a call: it asks for packages, and their layers are there; or it
        closes a task that is closed, and whose worktree is deleted or to be kept.

        Raises: `not_found`; `conflict` for a closed task; `policy_violation` if `layers.fetch` is `never`;
        `invalid_input` for a registry that cannot be used; `engine_unavailable`.
        """
        return use.requests.needs_no_question(self._services, call)

    def is_allowed_by_diff(self, call: AgentCall) -> bool:
        """Whether the rule `[when]` of the approval policy allows a call for what its commit changes. False without the
        rule, and for other tools. The call must then give `call.state` as its `expected_commit`: what was decided is
        about that commit, its base and its remote.

        Raises: `quota_exceeded` for a tree that is too large to read.
        """
        return use.requests.is_allowed_by_diff(self._services, call)

    def use_approval(self, call: AgentCall) -> bool:
        """Whether a person's approval covers the call; an approval for a single call is used up by this.

        Raises: as `take_approval`.
        """
        return self.take_approval(call) is not None

    def take_approval(self, call: AgentCall) -> Approval | None:
        """As `use_approval`, but returns the approval that covers the call, or None.

        Raises: `conflict` while another process holds the approvals; as `request_approval` for a call that would be
        refused: no approval is used up then.
        """
        return use.requests.take(self._services, call)

    def find_approval(self, call: AgentCall) -> Approval | None:
        """The approval that covers the call, which is not used up by this; None without one. It does not say whether
        the call would be refused. Raises: no specific code.
        """
        return use.requests.find_covering(self._services.home, call)

    def find_outdated_approval(self, call: AgentCall) -> OutdatedApproval | None:
        """The newest approval that a person gave for this call on another state, and what differs since; or for exactly
        this call, and how it ended. None without one.

        Raises: no specific code.
        """
        return use.requests.find_outdated(self._services.home, call)

    def find_used_approval(self, call: AgentCall, since: datetime) -> Approval | None:
        """The approval for exactly this call that was used up since then, and has not expired; None without one. For a
        call that was interrupted. Raises: no specific code.
        """
        return use.requests.find_used(self._services.home, call, since)

    def find_done_call(self, call: AgentCall) -> DoneCall | None:
        """The result, as of now, of a push or pull request that was carried out under an approval for exactly this
        call: the remote or the forge is asked, and nothing is sent. None if there was none, or it has expired, or what
        the call did is no longer so. Raises: as `push` and `pull_request_status`.
        """
        return use.repeated_calls.find_done_call(self._services, call)

    def request_approval(self, call: AgentCall) -> Approval:
        """Ask a person about a call; the answer is given with `sandbox approvals approve ID`.

        Raises: `approval_denied`; `quota_exceeded` for too many or too long questions; `not_found`; for a push or pull
        request also `nothing_to_commit`, `gate_closed`, `engine_unavailable`, `image_missing`, `invalid_input` for the
        remote or base, `policy_violation`, `forge_unsupported`; `dirty_workspace` for a task that cannot be closed so;
        `conflict` for a closed task.
        """
        with use.journaling.record_operation(
            self._services, call.task_id, "ask", dict(call.arguments), names=[call.tool]
        ) as done:
            return done(use.requests.ask(self._services, call))

    def approvals(self, *, everything: bool = False) -> tuple[Approval, ...]:
        """Open questions and approvals in force; with `everything` also those that are over.

        Raises: no specific code.
        """
        return use.requests.list_all(self._services.home, everything=everything)

    def approval(self, approval_id: str) -> Approval:
        """One approval. Raises: `not_found`."""
        return use.requests.find(self._services.home, approval_id)

    def approval_changes(self, approval_id: str) -> tuple[str, ...]:
        """What changed since the call of a request was asked about, as lines: an approval of it, for one call, does not
        cover the call of now. Empty also if that is not known. Raises: `not_found`.
        """
        return use.requests.describe_changes(self._services, approval_id)

    def answer_approval(
        self, approval_id: str, *, approved: bool, by: str, scope: ApprovalScope = ApprovalScope.ONCE
    ) -> Approval:
        """Store a person's decision; `by`: who decided, and how. What was denied may be approved later, until the
        denial expires; not by the client of an agent.

        Raises: `not_found`; `conflict` if it is decided or expired; `invalid_input` for a scope that the call does not
        have.
        """
        approval = use.requests.find(self._services.home, approval_id)
        operation, arguments = ("approve" if approved else "deny"), {"id": approval_id, "scope": scope.value, "by": by}
        with use.journaling.record_operation(
            self._services, approval.task_id, operation, arguments, names=[approval.tool, by]
        ) as done:
            return done(use.requests.answer(self._services, approval_id, approved=approved, by=by, scope=scope))

    def deny_approvals(self, *, by: str, tool: str | None = None) -> tuple[Approval, ...]:
        """Deny all open questions, or those of one tool.

        Questions that are answered in between are skipped. Raises: `not_found` for a tool that does not exist.
        """
        return use.requests.end_all(
            self._services.home,
            {ApprovalState.PENDING},
            tool,
            lambda approval_id: self.answer_approval(approval_id, approved=False, by=by),
        )

    def revoke_approvals(self, *, by: str, tool: str | None = None) -> tuple[Approval, ...]:
        """Revoke all approvals in force and all open questions, or those of one tool.

        Approvals that end in between are skipped. Raises: `not_found` for a tool that does not exist.
        """
        states = {ApprovalState.PENDING, ApprovalState.APPROVED}
        return use.requests.end_all(
            self._services.home, states, tool, lambda approval_id: self.revoke_approval(approval_id, by=by)
        )

    def revoke_approval(self, approval_id: str, *, by: str) -> Approval:
        """Revoke an approval or a question. Raises: `not_found`; `conflict` if it is already over."""
        approval = use.requests.find(self._services.home, approval_id)
        arguments, names = {"id": approval_id, "by": by}, [approval.tool, by]
        with use.journaling.record_operation(
            self._services, approval.task_id, "revoke", arguments, names=names
        ) as done:
            return done(use.requests.revoke(self._services, approval_id, by))

    def expire_approvals(self) -> tuple[Approval, ...]:
        """Mark questions that were not answered in time, and approvals that ran out unused, as expired. They have no
        effect since then anyway; each becomes an event. Raises: no specific code.
        """
        expired = []
        for approval in use.requests.find_expired(self._services.home):
            arguments, names = {"id": approval.id}, [approval.tool, f"was {approval.state.value}"]
            with (
                suppress(SandboxError),
                use.journaling.record_operation(
                    self._services, approval.task_id, "expire", arguments, names=names
                ) as done,
            ):
                expired.append(done(use.requests.expire(self._services.home, approval.id)))
        return tuple(expired)

    def close_task(
        self, task_id: str, *, delete_worktree: bool = False, discard: bool = False, expected_tree: str | None = None
    ) -> Task:
        """End a task; its remote branch is kept. Checks that run in it are stopped first.

        `delete_worktree`: also delete the worktree; `discard`: even with uncommitted changes. `expected_tree`: refuse
        if the working state is a different tree. Raises: `not_found`;
        `dirty_workspace` for uncommitted changes, unless `discard`; `timeout` and `engine_unavailable` as
        `stop_checks`; `conflict` while another operation holds the task.
        """
        arguments = {"delete": delete_worktree, "discard": discard}
        with use.journaling.record_operation(self._services, task_id, "close", arguments) as done:
            use.stop.stop_checks(self._services, task_id, reason="it was stopped because its task was closed")
            return done(
                use.lifecycle.close_task(
                    self._services, task_id, delete=delete_worktree, discard=discard, expected_tree=expected_tree
                )
            )

    def find_local_branch(self, task_id: str) -> str | None:
        """The task's branch in the cache clone; None if it was deleted, or the clone cannot be read.

        Raises: `not_found`.
        """
        task = records.find_task(self._services.home, task_id, allow_closed=True)
        return use.lifecycle.find_local_branch(self._services, task)

    def acquire_workspace(self, kind: str, request: WorkspaceRequest | None = None) -> Workspace:
        """The workspace of this kind that the request means; it is created at the first time (docs/workspaces.md).

        One request gives one workspace, also in other threads and processes. Raises: `invalid_input` for an unknown
        kind, or a hint that the kind does not take; `not_found` for a repository or branch; `policy_violation` for a
        directory of another tenant; `origin_mismatch`, `conflict` and `internal` for a clone that cannot be used.
        """
        return workspace_registry.find_factory(kind)(self._services).acquire(request or models.WorkspaceRequest())

    def open_task_workspace(self, task_id: str) -> Workspace:
        """The worktree of a task as a workspace: each change is an edit of the task, with its rules and journal.

        Raises: `not_found`.
        """
        return use.worktree_workspaces.open_task(self._services, task_id)

    def release_workspace(self, workspace_id: str) -> None:
        """Give a workspace up; a second time is no error.

        Raises: `not_found` for an id that was never acquired; `dirty_workspace` for uncommitted changes of a worktree
        or clone, which then stays as it is.
        """
        kind = workspace_id.rpartition("-")[0]
        workspace_registry.find_factory(kind, of_id=workspace_id)(self._services).release(workspace_id)

    def list_workspaces(self, kind: str | None = None) -> tuple[WorkspaceRecord, ...]:
        """The workspaces that were acquired and not released, those of one kind or of all; one that cannot be used has
        a `problem`. Raises: `invalid_input` for an unknown kind.
        """
        kinds = workspace_registry.list_kinds() if kind is None else [kind]
        providers = (workspace_registry.find_factory(each)(self._services) for each in kinds)
        return tuple(found for provider in providers for found in provider.list())

    def set_credential(
        self,
        host: str,
        *,
        username: str | None = None,
        secret: str = "",
        ssh_key: Path | None = None,
        ca_file: Path | None = None,
    ) -> CredentialInfo:
        """Store how to authenticate to `host`; see docs/credentials.md.

        Raises: `invalid_input`; `auth_failed` when the keyring refuses; `conflict` while another process holds the
        file.
        """
        fields = {"username": username, "secret": secret, "ssh_key": ssh_key, "ca_file": ca_file}
        return home_operations.set_credential(self._services, host, **fields)

    def credentials(self) -> tuple[CredentialInfo, ...]:
        """Stored credentials, without their secrets. Raises: `invalid_input` for an unusable file."""
        return use.credentials.list_credentials(self._services.home)

    def remove_credential(self, host: str) -> CredentialInfo:
        """Delete a stored credential.

        Raises: `not_found`; `auth_failed` when the keyring refuses; `conflict` while another process holds the file.
        """
        return home_operations.remove_credential(self._services, host)

    def images(self) -> tuple[ImageInfo, ...]:
        """Our images, and whether the engine has them. Raises: `engine_unavailable`."""
        return use.doctor.list_images(self._services)

    def build_image(
        self,
        name: str,
        progress: Callable[[str], None],
        *,
        no_cache: bool = False,
        wheelhouse: Path | None = None,
        name_as: str | None = None,
    ) -> ImageInfo:
        """Build an image and its parents if missing or stale; see `sandbox.images.build`.

        Raises: `not_found`; `invalid_input`; `image_missing`, `network_error`, `timeout`; `engine_unavailable`;
        `conflict` while another process builds.
        """
        with use.image_builds.open_build(self._services) as site:
            return images.build(site, name, progress, no_cache=no_cache, wheelhouse=wheelhouse, name_as=name_as)

    def build_images(
        self, names: Sequence[str], progress: Callable[[str], None], *, no_cache: bool = False
    ) -> tuple[ImageInfo, ...]:
        """Build images as `build_image` does, and at the same time what does not depend on each other.

        Raises: as `build_image`.
        """
        with use.image_builds.open_build(self._services) as site:
            return images.build_all(site, names, progress, no_cache=no_cache)

    def derive_image(self, name: str, packages: Sequence[str], progress: Callable[[str], None]) -> ImageInfo:
        """Build the image `name` with more Debian packages, unless it exists; `sandbox.images.build_derived`.

        Raises: as `build_image`; `invalid_input` also for a package that does not exist, with near matches.
        """
        with use.image_builds.open_build(self._services) as site:
            return images.build_derived(site, name, packages, progress)

    def remove_image(self, name: str) -> ImageInfo:
        """Remove an image with packages of a profile, by its name in `images`; it is built again when it is needed.

        Raises: `not_found`; `conflict` while a container uses it; `engine_unavailable`.
        """
        return home_operations.remove_image(self._services, name)

    def export_images(
        self, path: Path | str, names: Sequence[str] = (), progress: Callable[[str], None] | None = None
    ) -> ImageArchive:
        """Write images to an archive for another host; `sandbox.images.export`.

        Raises: `image_missing`, `not_found`; `conflict` for a path that exists, and for an image that was built
        meanwhile; `invalid_input` for a path that cannot be written; `quota_exceeded`; `internal` when the engine saves
        others; `engine_unavailable`.
        """
        return use.image_archives.export_images(self._services, Path(path), names, progress)

    def share_images(self, names: Sequence[str], progress: Callable[[str], None]) -> tuple[ImageArchive, ...]:
        """Put images into the shared store, each with what it was built on; hosts with `cache.images` take them there
        instead of building them.

        Raises: `invalid_input` without `cache.images`; `image_missing`, `not_found`; `quota_exceeded`; `network_error`
        if the store cannot be written; `engine_unavailable`.
        """
        return home_operations.share_images(self._services, names, progress)

    def import_images(
        self,
        path: Path | str,
        progress: Callable[[str], None] | None = None,
        *,
        expected: str | None = None,
        replace: bool = False,
    ) -> ImageArchive:
        """Import such an archive, all of it or no image; `sandbox.images.imports`.

        Raises: `invalid_input` for any other file or another digest; `conflict` for a name that another image has;
        `quota_exceeded`; `internal` when the engine refuses it; `engine_unavailable`.
        """
        return home_operations.import_images(self._services, Path(path), progress, expected=expected, replace=replace)

    def layers(self) -> tuple[LayerSummary, ...]:
        """The layers of dependencies of this home, the one used last first. Raises: no specific code."""
        return use.layer_list.list_layers(self._services)

    def layer(self, key: str) -> LayerDetails:
        """One layer, by its key or at least six characters of its beginning. Raises: `not_found`."""
        return use.layer_list.show_layer(self._services, key)

    def layer_sbom(self, key: str) -> str:
        """The packages of a layer as a CycloneDX 1.6 document, in JSON. Raises: `not_found`."""
        return use.layer_list.write_bill_of_materials(self._services, key)

    def build_layers(
        self, owner_id: str, watch: Watch | None = None, *, expected_commit: str | None = None, refresh: bool = False
    ) -> PreparedLayers:
        """Fetch and install the packages that the manifests of a task's last commit, or of a repository's default
        branch, ask for, if they are missing.

        `expected_commit`: refuse another last commit. `refresh`: choose the packages anew. Raises: `not_found`;
        `conflict` for another commit, or with reason `stopped` when it was cancelled;
        `policy_violation` if `layers.fetch` is `never`, or for a package with another hash than the lock file's;
        `egress_refused`, `network_error`, `timeout`; `engine_unavailable`, `image_missing`; `quota_exceeded`.
        """
        heard = watch or Watch()
        with home_operations.record_layers_build(self._services, owner_id, {"refresh": refresh}) as done:
            return done(
                use.layer_list.build_for_owner(self._services, owner_id, heard, expected_commit, refresh=refresh)
            )

    def start_layers(
        self, owner_id: str, watch: Watch | None = None, *, expected_commit: str | None = None, refresh: bool = False
    ) -> BackgroundRun:
        """As `build_layers`, without waiting: the answer has the run id for `wait_run` and `stop_run`; otherwise as
        `start_checks`.

        Raises: `not_found`; `conflict` for another commit; `quota_exceeded` for too many runs at once; the error of a
        run that fails at once, as `build_layers`.
        """
        use.layer_list.require_commit(self._services, owner_id, expected_commit)
        question = use.background.Question("layers-build", owner_id, (), {"refresh": refresh})

        def build(heard: Watch, _run_id: str) -> PreparedLayers:
            return self.build_layers(owner_id, heard, expected_commit=expected_commit, refresh=refresh)

        return use.background.start(self._services, question, watch or Watch(), build)

    def remove_layer(self, key: str) -> RemovedLayers:
        """Remove a layer; it is built again when it is needed. Raises: `not_found`; `conflict` while checks use it."""
        return home_operations.remove_layer(self._services, key)

    def collect_layers(self, *, dry_run: bool = False) -> Reconciliation:
        """Remove layers past `layers.keep_days` and `layers.max_bytes`; with `dry_run` only report them.

        Raises: `conflict` when another reconciliation takes longer than a minute.
        """
        return home_operations.collect_layers(self._services, dry_run=dry_run)

    def collect(self, *, dry_run: bool = False) -> Reconciliation:
        """Remove what killed controllers left, and finished work beyond `keep.*`; with `dry_run` only report it.

        Work of a killed controller is saved under a ref first; what exists only here is never removed.

        Raises: `conflict` when another reconciliation takes longer than a minute.
        """
        return home_operations.collect(self._services, dry_run=dry_run)

    def storage(self) -> Storage:
        """Who holds what in this home, what limits it, and what `collect` would free. Walks the home: seconds if it is
        large. Raises: no specific code.
        """
        return use.storage_report.show_storage(self._services)

    def last_storage(self) -> MeasuredStorage | None:
        """What the home and its repositories held when `storage` or a limit had them measured last; None before the
        first time. It does not measure. Raises: no specific code.
        """
        return use.storage_report.read_last(self._services)

    def keep_to_limits(self) -> Reconciliation:
        """Measure the home if `storage.*` limits it, and remove what is too much, as `collect` does; never what exists
        only here. Raises: `conflict` when another reconciliation takes longer than a minute.
        """
        return home_operations.keep_to_limits(self._services)

    def fill_pool(self) -> Pool:
        """Make spare tasks until there are `pool.size`, start their containers, and close those that are out of date.

        They are for the repositories that were worked in last. `task create` takes one over.
        Raises: `conflict` while another process does it; `quota_exceeded`; errors of the engine.
        """
        return use.fill_pool.fill_pool(self._services)

    def drain_pool(self) -> Pool:
        """Close all spare tasks; where `sandbox serve` runs and `pool.size` is not 0, it makes new ones. Raises: as
        `fill_pool`.
        """
        return use.fill_pool.drain_pool(self._services)

    def pool(self) -> tuple[Task, ...]:
        """The spare tasks, oldest first. Raises: no specific code."""
        return records.list_spares(self._services.home)

    def forget_kept(self, refs: Sequence[str]) -> Reconciliation:
        """Permanently delete rescued work and snapshots of closed tasks, and of tasks without a record. `refs`: as
        `collect` lists them; the id of a task stands for all of it. A later `collect` frees their space.

        Raises: `not_found` before any is deleted; `conflict` when another reconciliation takes longer than a minute.
        """
        return home_operations.forget(self._services, refs)

    def policy(self, name: str | None = None) -> tuple[PolicyRule, ...]:
        """Every rule in force and its source, or those of one policy.

        Policies: container, commit, paths, approvals, and settings. Raises: `not_found`.
        """
        return use.rules.list_rules(self._services, name)

    def check_patch(self, patch: bytes, repo_id: str = "") -> tuple[PolicyAnswer, ...]:
        """What the rules in force say of an edit with this unified diff, by path. Raises: `patch_rejected`."""
        return use.policy_questions.check_patch(self._services, patch, repo_id)

    def check_paths(self, paths: Sequence[str], repo_id: str = "") -> tuple[PolicyAnswer, ...]:
        """As `check_patch`, for paths of new files. Raises: no specific code."""
        return use.policy_questions.check_paths(self._services, paths, repo_id)

    def check_url(self, url: str) -> PolicyAnswer:
        """Whether the rules in force allow a URL as a remote. Raises: no specific code."""
        return use.policy_questions.check_url(self._services, url)

    def check_tool(self, tool: str, risk: Risk) -> PolicyAnswer:
        """What an agent's call of a tool would meet. Raises: no specific code."""
        return use.policy_questions.check_tool(self._services, tool, risk)

    def check_limits(self, owner_id: str, check_id: str) -> tuple[PolicyAnswer, ...]:
        """What a check of a task or repository would meet. Raises: `not_found`; as `checks`."""
        return use.policy_questions.check_check(self._services, owner_id, check_id)

    def policy_differences(self, other_home: Path | None = None) -> tuple[PolicyDifference, ...]:
        """The rules in force that are not as shipped, or not as in another home, which is only read.

        Raises: no specific code.
        """
        return use.policy_questions.diff_rules(self._services, other_home)

    def export_receipt(
        self, subject: str | RunSummary, *, signing_key: Path | None = None, provenance: bool = False
    ) -> SignedReceipt:
        """A signed receipt (docs/receipts.md) of all checks of a task on its last commit, of one run in a clean room,
        or of what `run` returned.

        `subject`: id of a task or run, or the summary. `signing_key`: file with a private Ed25519 key in PEM, instead
        of the home's key, which is made at its first use. `provenance`: of the artifacts of a run, which is then the
        subject (SLSA). Raises: `not_found`; `gate_closed` for a tree without verdicts; `invalid_input` for the key, for
        a run in a task's own files, and for the provenance of what did not pass; `quota_exceeded` for a receipt that is
        too large; `engine_unavailable`.
        """
        whole = self._complete_task_or_run(subject) if isinstance(subject, str) else subject
        return home_operations.export_receipt(self._services, whole, signing_key, provenance=provenance)

    def require_signing_key(self) -> None:
        """Refuse a key that cannot sign receipts, before checks run for one. Raises: `invalid_input`, `conflict`."""
        use.signing.find_signer(self._services, None)

    def _complete_task_or_run(self, name: str) -> str:
        return self.find_run(name) if name.startswith("run-") else self.task(name).id

    def sign_receipt(
        self, content: bytes, *, identity_token: Path | None = None, trust_config: Path | None = None
    ) -> SignedBundle:
        """The Sigstore bundle of an exported receipt: the identity of this job vouches for it, in a public log.

        `identity_token`: file with a token of OpenID Connect for the audience `sigstore`; None: the one that the CI
        gives its job. `trust_config`: of a private Sigstore instance; None: of the settings, else the public one.
        Raises: `receipt_refused` for what is no receipt; `auth_failed` without a token that the instance takes;
        `invalid_input` for a file, or without the extra `sigstore`; `network_error`; `timeout`.
        """
        return home_operations.sign_receipt(self._services, content, identity_token, trust_config)

    def verify_receipt(self, content: bytes, question: ReceiptQuestion | None = None) -> Receipt:
        """The content of a receipt that is signed by a trusted key, or has a bundle by who is named, and is about what
        is asked; ask it whether it `passed`.

        Raises: `receipt_refused` with a reason; `invalid_input` for a key, bundle or repository; as `clone` for a
        repository; `network_error` and `timeout` for the root keys of Sigstore's public instance.
        """
        return use.signed_receipts.verify(self._services, content, question or models.ReceiptQuestion())

    def replay_receipt(
        self,
        content: bytes,
        question: ReceiptQuestion | None = None,
        watch: Watch | None = None,
        *,
        runtime: str | None = None,
    ) -> ReplayResult:
        """Verify a receipt, run its checks here on its tree without cached verdicts, and compare the verdicts.

        Raises: as `verify_receipt` and `run`.
        """
        services = self._services.with_runtime(runtime)
        return home_operations.replay_receipt(services, content, question or models.ReceiptQuestion(), watch or Watch())

    def push_receipt(self, repo_id: str, content: bytes, question: ReceiptQuestion | None = None) -> PushedReceipt:
        """Add a receipt to the git notes of its commit on the remote, `refs/notes/space-sandbox`.

        Raises: `receipt_refused`; `not_found` for the repository or commit; as `push`.
        """
        return home_operations.push_receipt(self._services, repo_id, content, question or models.ReceiptQuestion())

    def fetch_receipts(self, url: str, ref: str = "HEAD", question: ReceiptQuestion | None = None) -> FoundReceipts:
        """The receipts that a remote's notes have for a commit, each verified with the trusted keys.

        Raises: as `clone`; `not_found` for an unknown ref; `unsafe_repository` for notes that cannot be used.
        """
        return use.receipt_notes.fetch_receipts(self._services, url, ref, question or models.ReceiptQuestion())

    def receipt_keys(self) -> tuple[ReceiptKey, ...]:
        """The public keys of this home, the newest last; the first call makes one.

        Raises: `conflict` while another process makes one.
        """
        return use.signing.list_keys(self._services.home)

    def rotate_receipt_key(self) -> ReceiptKey:
        """Replace the home's key; the receipts that it has signed stay valid. Raises: `conflict`."""
        return home_operations.rotate_receipt_key(self._services)

    def revoke_receipt_key(self, keyid: str, *, reason: str = "") -> ReceiptKey:
        """Revoke a key of this home by its id or its beginning; all its receipts are refused from now on.

        Raises: `not_found`; `conflict`.
        """
        return home_operations.revoke_receipt_key(self._services, keyid, reason)

    def audit_verify(self) -> AuditReport:
        """Verify the hash chains of all journals; the report names the first changed entry of each.

        Raises: no specific code.
        """
        return use.audit.verify_journals(self._services.home)

    def audit_export(self, *, since: datetime | None = None, task_id: str | None = None) -> Iterator[AuditRecord]:
        """Every entry of every journal, and every decided approval, by time; from `since` on, or of one task.

        Raises: `not_found` for the task.
        """
        return use.audit.export_records(self._services.home, since, task_id)

    def record_attacks(self, report: AttackReport) -> None:
        """Write the result of `sandbox.attack.attack` into the home's journal. Raises: no specific code."""
        home_operations.record_attacks(self._services, report)

    def capabilities(self, labels: Mapping[str, str] | None = None) -> HostCapabilities:
        """What this host can do for tasks, with these labels.

        Raises: `engine_unavailable`; `policy_violation`; `invalid_input` for a policy with a mistake.
        """
        return use.host_capabilities.find_capabilities(self._services, labels or {})

    def require_room(self) -> None:
        """Whether the disk of this home takes another task. Raises: `quota_exceeded` if not."""
        use.host_capabilities.require_room(self._services)

    def doctor(self) -> tuple[Probe, ...]:
        """Capabilities and problems of this host. Raises: no code, also not the general ones."""
        return home_operations.doctor(self._services)
