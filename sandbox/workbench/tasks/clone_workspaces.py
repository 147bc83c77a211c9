"""Workspaces of kind `clone`: a repository and a checkout of its own, independent of the cache clone and of tasks.

`<home>/repositories/workspaces/clone/<id>/` holds `repository` (bare; only this module runs git on it), `files` (the
working files, opened through `sandbox.files` alone) and `origin`. It is created beside and renamed, so it is there as
a whole or not at all. No call of git is forced, and no existing file is overwritten.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal

from sandbox.durable import make_durable, sync_all
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.checkout import remove_tree
from sandbox.files.tree import WorktreeFiles
from sandbox.git import new_commits, objects, refs
from sandbox.git.cache_clones import resolve_commit
from sandbox.git.contents import spool_contents
from sandbox.git.entries import TreeChange
from sandbox.git.independent_clone import copy_refs, copy_repository
from sandbox.git.maintenance import store_objects
from sandbox.git.partial import is_partial
from sandbox.git.process import Git
from sandbox.git.set_aside import translated_shortages
from sandbox.models import Change, WorkspaceKind, WorkspaceRecord, WorkspaceRequest
from sandbox.policy.writes import parse_writable_path
from sandbox.store.home import GIT_MASK, write_atomically
from sandbox.workbench.controller.commit_identity import (
    SANDBOX_IDENTITY,
    Identity,
    choose_identity,
    parse_author,
)
from sandbox.workbench.controller.disk_admission import Writer
from sandbox.workbench.controller.disk_demands import demand_of_checkout, demand_of_difference, demand_of_objects
from sandbox.workbench.controller.journaling import record_operation
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.commit_facts import load_base
from sandbox.workbench.tasks.repository_hints import HINT_FORMAT, parse_repository_hint
from sandbox.workbench.tasks.status import clean_message, require_sources
from sandbox.workspaces.acquired import AcquiredWorkspace, AcquiredWorkspaces
from sandbox.workspaces.changes import Changes, require_no_unsaved_work
from sandbox.workspaces.comparison_limits import ComparisonLimits, compare_within_memory
from sandbox.workspaces.folder_workspace import FolderWorkspace, OwnFolder
from sandbox.workspaces.full_checkout import PlainLayout
from sandbox.workspaces.layout import WorktreePaths
from sandbox.workspaces.local_workspaces import describe
from sandbox.workspaces.operator_hooks import run_hook
from sandbox.workspaces.restore import RestoreSource, restore_tree
from sandbox.workspaces.statcache import StatCacheFiles
from sandbox.workspaces.workspace import PRISTINE

_SNAPSHOTS = "refs/sandbox/snapshots/"
_SAVE_HINT = "Commit the changes, or restore the snapshot `pristine`."
_DELETE_HINT = "No file was deleted: release it again once its directory holds only what the last commit has."
_OWN_COMMITS_HINT = (
    "It was not touched: it has commits of its own, which do not belong into the cache clone of another remote. Push "
    "them from {repository}, or copy that directory; then delete {top}, and release it."
)


@dataclass(frozen=True)
class CloneFolders:
    """The directories of one clone."""

    top: Path

    @property
    def repository(self) -> Path:
        return self.top / "repository"

    @property
    def files(self) -> Path:
        return self.top / "files"

    @property
    def origin(self) -> Path:
        """The URL that the clone was made from, without credentials."""
        return self.top / "origin"

    def locate_worktree(self) -> WorktreePaths:
        """The working files, as the plain layout takes them."""
        cache = StatCacheFiles(self.top / "files.stat", self.top / "files.guest")
        return WorktreePaths(self.files, self.top / "no-layers", self.top, None, None, GIT_MASK, cache)

    def find_problem(self, remote_url: str, branch: str, executable: str) -> SandboxError | None:
        """Why the clone cannot be used; None if it can. Reads only."""
        try:
            origin = self.origin.read_text()
        except OSError:
            return _corrupt_error(self.top, "its origin is missing")
        if not (self.repository / "HEAD").is_file() or not self.files.is_dir():
            return _corrupt_error(self.top, "its repository or its files are missing")
        if refs.resolve_ref(Git(self.repository, executable), f"refs/heads/{branch}") is None:
            return _corrupt_error(self.top, f"its branch {branch} is missing")
        if origin != remote_url:  # after what is damaged: `release` goes on with a clone that is whole
            return SandboxError(
                ErrorCode.ORIGIN_MISMATCH,
                f"The clone {self.top.name} is of another remote",
                details=f"it is of {origin[:300]}, the repository is now {remote_url}",
                hint="It was not touched. Release it, then acquire it again.",
            )
        return None


def _corrupt_error(top: Path, why: str) -> SandboxError:
    return SandboxError(
        ErrorCode.INTERNAL,
        f"The clone {top.name} is corrupt: {why}",
        details=str(top),
        hint="It was not touched. Save what you need of it, then delete the directory; the next acquire clones again.",
        reason="corrupt_clone",
    )


def _require_clonable(repo_id: str, source: Git, folders: CloneFolders) -> None:
    if is_partial(source):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"{repo_id} is a partial clone: an independent clone needs all objects",
            hint=f"`sandbox repo materialize {repo_id}` fetches them.",
        )
    if folders.top.exists():
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"A directory is in the place of the clone {folders.top.name}",
            details=str(folders.top),
            hint="It was not touched. Move it away.",
        )


@dataclass(frozen=True)
class CloneHistory:
    """The history of a clone, as a `History`. Its base is the last commit of its branch.

    Processes of this host write to a clone, so only `diff` trusts stamps: all else reads all files again.
    """

    services: Services
    acquired: AcquiredWorkspaces
    record: AcquiredWorkspace
    folders: CloneFolders

    @property
    def git(self) -> Git:
        """git on the clone's own repository."""
        return Git(self.folders.repository, self.services.settings.git.executable)

    @property
    def branch(self) -> str:
        """The full name of its branch."""
        return f"refs/heads/{self.record.facts['branch']}"

    @property
    def has_own_commits(self) -> bool:
        """Whether its branch has a commit that no branch or tag of the remote had when it was cloned."""
        head = self.find_head()
        return bool(self.git.run("rev-list", "--max-count=1", head, "--not", "--remotes=origin", "--tags"))

    def find_head(self) -> str:
        """The last commit. Raises: `internal` for a corrupt clone."""
        head = refs.resolve_ref(self.git, self.branch)
        if head is None:
            raise _corrupt_error(self.folders.top, "its branch is missing")
        return head

    @contextmanager
    def compare(self, *, reads_all: bool = True) -> Iterator[tuple[str, Changes]]:
        """The head, and the changes since it; their contents can be read until the `with` block ends."""
        git, head, site = self.git, self.find_head(), self.folders.locate_worktree()
        compared = site.without_stat_cache() if reads_all else site
        base = load_base(self.services.home, self.services.policies, self.record.facts["repo"], git, head)
        with spool_contents(git) as spool:
            tree = objects.tree_of(git, head)

            def find(limits: ComparisonLimits) -> Changes:
                return PlainLayout().find_changes(git, compared, base, tree, spool, limits)

            with compare_within_memory(spool, find) as changes:
                yield head, changes

    def diff(self) -> list[Change]:
        """See `Workspace`."""
        with self.compare(reads_all=False) as (_, changes):
            return list(changes.shown)

    def snapshot(self) -> str:
        """See `Workspace`."""
        with self.acquired.locked(self.record.id), self.compare() as (head, changes):
            return self._keep(head, changes) if changes.tree else PRISTINE

    def _keep(self, head: str, changes: Changes) -> str:
        git = self.git
        with self.services.disk.admit(Writer.SNAPSHOT, demand_of_objects(changes.tree)), store_objects(git):
            tree = new_commits.build_tree(git, head, changes.tree)
            if refs.resolve_ref(git, _SNAPSHOTS + tree) is None:
                identity = SANDBOX_IDENTITY.as_environment(datetime.now(UTC))
                commit = new_commits.commit_tree(git, tree, head, "snapshot\n", identity)
                refs.move_ref(git, _SNAPSHOTS + tree, commit, None)
        return tree

    def restore(self, snapshot: str) -> None:
        """See `Workspace`. The state before is kept as a snapshot."""
        with self.acquired.locked(self.record.id), self.compare() as (head, changes):
            target = self._find_target(head, snapshot)
            before = self._keep(head, changes) if changes.tree else objects.tree_of(self.git, head)
            with (
                self.services.disk.admit(Writer.RESTORE, demand_of_difference(self.git, before, target)),
                WorktreeFiles(self.folders.files) as files,
            ):
                restore_tree(RestoreSource(self.git), files, before, target, None, changes.rejected)

    def _find_target(self, head: str, snapshot: str) -> str:
        if snapshot == PRISTINE:
            return objects.tree_of(self.git, head)
        known = objects.is_object_id(snapshot) and refs.resolve_ref(self.git, _SNAPSHOTS + snapshot)
        if not known:
            raise SandboxError(
                ErrorCode.NOT_FOUND,
                f"There is no snapshot '{snapshot[:100]}' of this workspace",
                hint="`snapshot` returns the name that `restore` takes.",
            )
        return snapshot

    def commit(self, message: str, author: str | None) -> str:
        """See `Workspace`. `author`: `Name <e-mail>`; None: as the settings say."""
        text, services = clean_message(message), self.services
        who = choose_identity(services.settings, services.git_operator)
        if author is not None:
            who = Identity(parse_author(author), who.committer)
        with self.acquired.locked(self.record.id), self.compare() as (head, changes):
            if not changes.tree:
                raise SandboxError(
                    ErrorCode.NOTHING_TO_COMMIT, "The workspace has no changes", hint="Write a file before you commit."
                )
            require_sources(services.policies, services.settings, changes, changes.shown)
            return self._store_commit(head, changes.tree, text, who)

    def _store_commit(self, head: str, changes: tuple[TreeChange, ...], text: str, who: Identity) -> str:
        git, now = self.git, datetime.now(UTC)
        with self.services.disk.admit(Writer.COMMIT, demand_of_objects(changes)), store_objects(git):
            stored = new_commits.build_commit(git, head, changes, text, who.as_environment(now))
            refs.move_ref_to_stored(git, self.branch, stored, head)
        return stored.commit

    def read_metadata(self) -> dict[str, str]:
        """See `Workspace`."""
        facts = self.record.facts
        return {
            "git.remote": facts["remote"],
            "git.branch": facts["branch"],
            "git.commit": self.find_head(),
            "sandbox.branch": facts["start"],
            "sandbox.repository": str(self.folders.repository),
        }


class CloneWorkspaces:
    """See `WorkspaceProvider`. The branch of the hint is created at the default branch, unless the remote has it; the
    metadata `sandbox.branch` says which: `new` or `existing`.
    """

    kind = WorkspaceKind.CLONE.value
    hint_format = HINT_FORMAT

    def __init__(self, services: Services) -> None:
        self._services = services
        self._acquired = AcquiredWorkspaces(services.home, self.kind)

    def acquire(self, request: WorkspaceRequest) -> FolderWorkspace:
        """See `WorkspaceProvider`.

        Raises: `origin_mismatch` when the repository has another remote than the clone; `internal` for a corrupt clone;
        `conflict` for a directory in its place; `invalid_input` for a partial cache clone.
        """
        workspace_id = self._acquired.id_of(request)
        folders = CloneFolders(self._acquired.folder_of(workspace_id))
        with self._acquired.locked(workspace_id):
            record = self._acquired.find(workspace_id)
            if record is None or not folders.top.exists():
                with record_operation(self._services, None, "acquire", {"hint": request.hint}, names=[workspace_id]):
                    record = self._create(request, folders)
            self._require_usable(record, folders)
        history = CloneHistory(self._services, self._acquired, record, folders)
        lock = partial(self._acquired.locked, workspace_id)
        allowed = partial(parse_writable_path, policy=self._services.policies.paths, repo_id=record.facts["repo"])
        folder = OwnFolder(folders.files, lock, allowed)
        is_held = self._acquired.watch(workspace_id)
        return FolderWorkspace(workspace_id, WorkspaceKind.CLONE, folder, request.writable, history, is_held=is_held)

    def release(self, workspace_id: str) -> None:
        """See `WorkspaceProvider`. Commits that no remote branch has are kept in the cache clone, as
        `refs/sandbox/<id>/rescued-<commit>`; snapshots are deleted.

        Raises: `dirty_workspace`, also for new files; `origin_mismatch` when it has such commits, and the cache clone
        is now of another remote.
        """
        self._acquired.release(workspace_id, self._destroy)

    def list(self) -> list[WorkspaceRecord]:
        """See `WorkspaceProvider`."""
        return [describe(self.kind, found, self._find_problem) for found in self._acquired.list()]

    def _create(self, request: WorkspaceRequest, folders: CloneFolders) -> AcquiredWorkspace:
        wanted = parse_repository_hint(request.hint)
        repository, source = self._services.repositories.open(wanted.repo_id)
        _require_clonable(repository.id, source, folders)
        start = resolve_commit(source, "HEAD", repository.default_branch)
        branch = wanted.branch or repository.default_branch
        existing = refs.resolve_ref(source, f"refs/remotes/origin/{branch}")
        record = self._acquired.save(
            request,
            repo=repository.id,
            remote=repository.remote_url,
            branch=branch,
            start="existing" if existing else "new",
        )
        self._build(record, folders, source, existing or start)
        return record

    def _build(self, record: AcquiredWorkspace, folders: CloneFolders, source: Git, commit: str) -> None:
        """Make the clone beside its place, and move it there once it is complete. `commit`: where its branch starts."""
        facts = {
            "id": record.id,
            "kind": self.kind,
            "root": str(folders.files),
            "tenant": record.tenant,
            **record.facts,
        }
        beside = CloneFolders(folders.top.with_name(f".{folders.top.name}.{secrets.token_hex(8)}"))
        beside.top.mkdir(mode=0o700)
        try:
            self._run_hook("pre_create", facts)
            self._fill(beside, source, record.facts["branch"], commit)
            write_atomically(beside.origin, record.facts["remote"].encode())
            self._run_hook("post_create", {**facts, "root": str(beside.files)})
            with translated_shortages():
                make_durable(beside.top)  # else a power failure could leave empty files, or a branch without a commit
            beside.top.rename(folders.top)
        except BaseException:
            remove_tree(beside.top)
            self._acquired.forget(record.id)
            raise
        with translated_shortages():
            sync_all((folders.top.parent,))

    def _run_hook(self, name: Literal["pre_create", "post_create"], facts: Mapping[str, str]) -> None:
        settings = self._services.settings.workspaces
        argv = settings.pre_create if name == "pre_create" else settings.post_create
        run_hook(name, argv, facts, self._services.environ)

    def _fill(self, folders: CloneFolders, source: Git, branch: str, commit: str) -> None:
        with self._services.disk.admit_transfer(self._services.settings.remotes.max_fetch_bytes) as most:
            git = copy_repository(source, folders.repository, len(commit), most)
        refs.move_ref(git, f"refs/heads/{branch}", commit, None)
        tree = objects.tree_of(git, commit)
        with self._services.disk.admit(Writer.CHECKOUT, demand_of_checkout(objects.list_tree(git, tree))):
            PlainLayout().create(git, tree, folders.locate_worktree())

    def _require_usable(self, record: AcquiredWorkspace, folders: CloneFolders) -> None:
        problem = self._find_obstacle(record, folders)
        if problem is not None:
            raise problem

    def _find_obstacle(self, record: AcquiredWorkspace, folders: CloneFolders) -> SandboxError | None:
        repository, git = self._services.repositories.open(record.facts["repo"])
        return folders.find_problem(repository.remote_url, record.facts["branch"], git.executable)

    def _find_problem(self, record: AcquiredWorkspace) -> tuple[Path, str | None]:
        folders = CloneFolders(self._acquired.folder_of(record.id))
        if not folders.top.exists():
            return folders.files, "its directory is gone; the next acquire clones again"
        try:
            self._require_usable(record, folders)
        except SandboxError as error:
            return folders.files, error.brief
        return folders.files, None

    def _destroy(self, record: AcquiredWorkspace) -> None:
        folders = CloneFolders(self._acquired.folder_of(record.id))
        if not folders.top.exists():
            return
        problem = self._find_obstacle(record, folders)
        if problem is not None and problem.code is not ErrorCode.ORIGIN_MISMATCH:
            raise problem
        history = CloneHistory(self._services, self._acquired, record, folders)
        if problem is not None and history.has_own_commits:
            raise problem.with_changes(hint=_OWN_COMMITS_HINT.format(repository=folders.repository, top=folders.top))
        with history.compare() as (_, changes):
            require_no_unsaved_work(record.id, changes, save_hint=_SAVE_HINT, delete_hint=_DELETE_HINT)
        with record_operation(self._services, None, "release", {"id": record.id}, names=[record.id]):
            self._keep_commits(record, history)
            aside = folders.top.with_name(f".{folders.top.name}.removed-{secrets.token_hex(8)}")
            folders.top.rename(aside)
            remove_tree(aside)

    def _keep_commits(self, record: AcquiredWorkspace, history: CloneHistory) -> None:
        if not history.has_own_commits:
            return
        head = history.find_head()
        _, cache = self._services.repositories.open(record.facts["repo"])
        kept = f"refs/sandbox/{record.id}/rescued-{head[:12]}"
        if refs.resolve_ref(cache, kept) is None:
            most = self._services.settings.remotes.max_fetch_bytes
            with (
                self._services.home.locked(f"repository-{record.facts['repo']}"),
                self._services.disk.admit_transfer(most) as share,
            ):
                copy_refs(history.git, cache, (f"{history.branch}:{kept}",), share)
