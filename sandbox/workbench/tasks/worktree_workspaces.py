"""Workspaces of kind `worktree`: each is the worktree of a task, so all rules of tasks hold for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.names import EntryKind
from sandbox.files.tree import WorktreeFiles, sha256_of
from sandbox.models import Change, Task, TaskStatus, WorkspaceKind, WorkspaceRecord, WorkspaceRequest
from sandbox.policy.paths import RepoPath, path_bytes, show_path
from sandbox.policy.writes import parse_writable_path
from sandbox.store.records import find_repository, find_task
from sandbox.workbench.controller.journaling import record_operation
from sandbox.workbench.controller.services import Services
from sandbox.workbench.tasks import edit, snapshots, status
from sandbox.workbench.tasks.lifecycle import close_task, compare_task, create_task, lock_task
from sandbox.workbench.tasks.repository_hints import HINT_FORMAT, parse_repository_hint
from sandbox.workbench.tasks.tree_tasks import lay_out_files
from sandbox.workbench.tasks.worktrees import has_worktree, locate_worktree, open_files
from sandbox.workspaces.acquired import AcquiredWorkspace, AcquiredWorkspaces
from sandbox.workspaces.folder_workspace import FolderWorkspace
from sandbox.workspaces.local_workspaces import describe
from sandbox.workspaces.workspace import PRISTINE

_RELEASE_HINT = (
    "No file was deleted. Restore the snapshot `pristine` to drop the changes, then release it again; "
    "`sandbox task close {} --delete --discard` deletes all of it."
)


@dataclass(frozen=True)
class TaskFolder:
    """The worktree of a task, as a `Folder`. Each change is hash-gated and journaled as an edit of the task."""

    services: Services
    task: Task

    @property
    def root(self) -> Path:
        """See `Folder`."""
        return self.services.home.worktree(self.task.repo_id, self.task.id)

    @contextmanager
    def open(self) -> Iterator[WorktreeFiles]:
        """See `Folder`."""
        with open_files(self.services.home, self.services.policies, self._find()) as files:
            yield files

    def parse_writable(self, path: str) -> RepoPath:
        """See `Folder`. The path policy of the repository holds."""
        return parse_writable_path(path, self.services.policies.paths, self.task.repo_id)

    def write(self, path: RepoPath, content: bytes, executable: bool | None) -> None:
        """See `Folder`."""
        with self.open() as files:
            expected = sha256_of(files.read(path)) if files.exists(path) else None
        arguments = {"path": path, "content": content, "expected_sha256": expected, "executable": executable}
        with record_operation(self.services, self.task.id, "write", arguments, names=[path]) as done:
            done(edit.write_file(self.services, self.task.id, path, content, expected, executable))

    def remove(self, path: RepoPath) -> None:
        """See `Folder`. Raises: `unsafe_path` for a link: edits of tasks take files only."""
        self._remove_files(path, lambda _: [path])

    def remove_folder(self, path: RepoPath) -> None:
        """See `Folder`. Raises: `unsafe_path` for a directory with a link or a special file in it."""
        self._remove_files(path, lambda files: _list_files(files, path))

    def _remove_files(self, path: RepoPath, select: edit.SelectPaths) -> None:
        with record_operation(self.services, self.task.id, "delete", {"path": path}, names=[path]) as done:
            done(edit.delete_files(self.services, self.task.id, select))

    def _find(self) -> Task:
        return find_task(self.services.home, self.task.id)


def _list_files(files: WorktreeFiles, folder: RepoPath) -> list[RepoPath]:
    """The files below a directory."""
    found, pending = list[RepoPath](), [path_bytes(folder)]
    while pending:
        for entry in files.list_directory(pending.pop()):
            if entry.kind is EntryKind.DIRECTORY:
                pending.append(entry.path)
            else:
                found.append(RepoPath(show_path(entry.path)))
    return found


@dataclass(frozen=True)
class TaskHistory:
    """The history of a task, as a `History`. The base of the workspace is the task's last commit.

    Processes of this host write to a workspace, so a snapshot and a commit read all files again.
    """

    services: Services
    task_id: str

    def diff(self) -> list[Change]:
        """See `Workspace`."""
        with compare_task(self.services, find_task(self.services.home, self.task_id)) as opened:
            return list(opened.changes.shown)

    def snapshot(self) -> str:
        """See `Workspace`."""
        with compare_task(self.services, find_task(self.services.home, self.task_id), reads_all=True) as opened:
            if not opened.changes.tree:
                return PRISTINE
        with record_operation(self.services, self.task_id, "snapshot", {"label": ""}) as done:
            return done(snapshots.take_snapshot(self.services, self.task_id, reads_all=True)).tree

    def restore(self, snapshot: str) -> None:
        """See `Workspace`."""
        kept = snapshots.list_snapshots(self.services.home, self.services.repositories, self.task_id)
        state = "head" if snapshot == PRISTINE else next((s.id for s in kept if s.tree == snapshot), snapshot)
        with record_operation(self.services, self.task_id, "restore", {"snapshot": state}, names=[state]) as done:
            done(snapshots.restore_state(self.services, self.task_id, state))

    def commit(self, message: str, author: str | None) -> str:
        """See `Workspace`. Raises: `invalid_input` for an author: the settings name that of a task."""
        if author is not None:
            raise SandboxError(
                ErrorCode.INVALID_INPUT,
                "The author of a task's commit cannot be chosen by the caller",
                hint="`[author]` in config.toml names it.",
            )
        with record_operation(self.services, self.task_id, "commit", {"message": message}) as done:
            return done(status.commit_task(self.services, self.task_id, message, reads_all=True)).commit

    def read_metadata(self) -> dict[str, str]:
        """See `Workspace`."""
        task = find_task(self.services.home, self.task_id, allow_closed=True)
        remote = find_repository(self.services.home, task.repo_id).remote_url
        return {
            "git.remote": remote,
            "git.branch": task.branch,
            "git.commit": task.head_commit,
            "sandbox.task": task.id,
        }


class WorktreeWorkspaces:
    """See `WorkspaceProvider`. The task is created at the first acquire, and again when a person has closed it."""

    kind = WorkspaceKind.WORKTREE.value
    hint_format = HINT_FORMAT

    def __init__(self, services: Services) -> None:
        self._services = services
        self._acquired = AcquiredWorkspaces(services.home, self.kind)

    def acquire(self, request: WorkspaceRequest) -> FolderWorkspace:
        """See `WorkspaceProvider`."""
        wanted = parse_repository_hint(request.hint)
        workspace_id = self._acquired.id_of(request)
        with self._acquired.locked(workspace_id):
            record = self._acquired.find(workspace_id)
            task = self._find_open_task(record)
            if task is None:
                with record_operation(self._services, None, "create", {"repo_id": wanted.repo_id}) as done:
                    task = done(create_task(self._services, wanted.repo_id, "workspace", wanted.branch))
                self._acquired.save(request, task=task.id)
        folder, history = TaskFolder(self._services, task), TaskHistory(self._services, task.id)
        return FolderWorkspace(workspace_id, WorkspaceKind.WORKTREE, folder, request.writable, history)

    def release(self, workspace_id: str) -> None:
        """See `WorkspaceProvider`. The task is closed; commits and snapshots that exist only here are kept.

        Raises: `dirty_workspace` for uncommitted changes.
        """
        self._acquired.release(workspace_id, self._close)

    def list(self) -> list[WorkspaceRecord]:
        """See `WorkspaceProvider`."""
        return [describe(self.kind, found, self._find_problem) for found in self._acquired.list()]

    def _close(self, record: AcquiredWorkspace) -> None:
        if task := self._find_open_task(record):
            arguments = {"delete": True, "discard": False}
            with record_operation(self._services, task.id, "close", arguments) as done:
                hint = _RELEASE_HINT.format(task.id)
                done(close_task(self._services, task.id, delete=True, discard=False, discard_hint=hint))

    def _find_open_task(self, record: AcquiredWorkspace | None) -> Task | None:
        if record is None:
            return None
        try:
            task = find_task(self._services.home, record.facts["task"], allow_closed=True)
        except SandboxError as error:
            if error.code is ErrorCode.NOT_FOUND:
                return None
            raise
        return None if task.status is TaskStatus.CLOSED else task

    def _find_problem(self, record: AcquiredWorkspace) -> tuple[Path | None, str | None]:
        task = self._find_open_task(record)
        if task is None:
            return None, "its task is closed; the next acquire creates a new one"
        site = locate_worktree(self._services.home, self._services.policies, task.repo_id, task.id)
        return site.root, None if has_worktree(site) else "its worktree is gone"


def open_task(services: Services, task_id: str) -> FolderWorkspace:
    """A workspace on the worktree of a task; it is not acquired, and lives as long as the task. Raises: `not_found`."""
    with lock_task(services, task_id) as locked:
        task = lay_out_files(services, locked)
    folder, history = TaskFolder(services, task), TaskHistory(services, task.id)
    return FolderWorkspace(task.id, WorkspaceKind.WORKTREE, folder, True, history)
