"""Workspaces of kind `tree`: trees of registered repositories, changed without files on disk (docs/adr/0096).

A workspace has refs in the cache clone, below `refs/sandbox/<its id>/snapshots/`: `branch`, its last commit; `working`,
what was written when it was closed last; and one for each snapshot. They are listed as only copies of work, so
`repo remove` asks before they go.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import objects, refs
from sandbox.git.cache_clones import resolve_commit
from sandbox.git.process import Git
from sandbox.git.trees.tree_value import PRISTINE, TreeValue, open_tree
from sandbox.models import Repository, WorkspaceKind, WorkspaceRecord, WorkspaceRequest
from sandbox.policy.writes import parse_writable_path
from sandbox.workbench.controller import commit_identity
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.clone import fetch_objects
from sandbox.workbench.tasks.repository_hints import HINT_FORMAT, parse_repository_hint
from sandbox.workspaces.acquired import AcquiredWorkspace, AcquiredWorkspaces
from sandbox.workspaces.local_workspaces import describe
from sandbox.workspaces.tree_workspace import TreeKeeper, TreeState, TreeWorkspace


class TreeWorkspaces:
    """See `WorkspaceProvider`. Workspace objects of one id share their content within a provider."""

    kind = WorkspaceKind.TREE.value
    hint_format = f"{HINT_FORMAT}; also a tag or a commit"

    def __init__(self, services: Services) -> None:
        self._services = services
        self._acquired = AcquiredWorkspaces(services.home, self.kind)

    def acquire(self, request: WorkspaceRequest) -> TreeWorkspace:
        """See `WorkspaceProvider`. Raises: `invalid_input` without a hint, `not_found`."""
        wanted = parse_repository_hint(request.hint)
        repository, git = self._services.repositories.open(wanted.repo_id)
        workspace_id = self._acquired.id_of(request)
        with self._acquired.locked(workspace_id):
            record = self._acquired.find(workspace_id)
            if record is None:
                commit = resolve_commit(git, wanted.branch or "HEAD", repository.default_branch)
                record = self._acquired.save(request, repository=repository.id, commit=commit)
            refs = _Refs(self._services, git, f"refs/sandbox/{workspace_id}/snapshots/")
            state = self._share(record, repository, refs)
        return TreeWorkspace(
            workspace_id,
            state,
            request.writable,
            TreeKeeper(refs.snapshot, refs.commit, refs.save),
            partial(self._parse_writable, repository.id),
            {"git.remote": repository.remote_url, "git.branch": wanted.branch or repository.default_branch},
        )

    def release(self, workspace_id: str) -> None:
        """See `WorkspaceProvider`. Its last commit is kept. Raises: `dirty_workspace` for what is not committed."""
        self._acquired.release(workspace_id, self._give_up)

    def list(self) -> list[WorkspaceRecord]:
        """See `WorkspaceProvider`."""
        return [describe(self.kind, found, lambda _: (None, None)) for found in self._acquired.list()]

    def _parse_writable(self, repo_id: str, path: str) -> str:
        return parse_writable_path(path, self._services.policies.paths, repo_id)

    def _share(self, record: AcquiredWorkspace, repository: Repository, refs: _Refs) -> TreeState:
        states = self._services.tree_states
        with self._services.once_lock:
            if record.id not in states:
                fetch = partial(fetch_objects, self._services, repository, refs.git)
                base = refs.find("branch") or record.facts["commit"]
                value = open_tree(refs.git, base, default_branch=repository.default_branch, fetch=fetch)
                working = refs.find("working")
                states[record.id] = TreeState(value.restore(objects.tree_of(refs.git, working)) if working else value)
            return states[record.id]

    def _give_up(self, record: AcquiredWorkspace) -> None:
        repository, git = self._services.repositories.open(record.facts["repository"])
        refs = _Refs(self._services, git, f"refs/sandbox/{record.id}/snapshots/")
        if not self._share(record, repository, refs).value.is_pristine:
            raise SandboxError(
                ErrorCode.DIRTY_WORKSPACE,
                f"The workspace {record.id} has changes that are not committed",
                hint="Commit them, or restore the snapshot 'pristine' to drop them.",
            )
        refs.release()
        self._services.tree_states.pop(record.id, None)


@dataclass(frozen=True)
class _Refs:
    """The refs of one workspace."""

    services: Services
    git: Git
    place: str

    def find(self, name: str) -> str | None:
        """The commit of a ref."""
        return refs.resolve_ref(self.git, self.place + name)

    def snapshot(self, value: TreeValue) -> str:
        """Store the content, with a ref to it."""
        if value.is_pristine:
            return PRISTINE
        if self.find(value.tree) is None:
            self._keep(value, value.tree)
        return value.tree

    def save(self, value: TreeValue) -> None:
        """Keep what was written, or that it was given up."""
        if not value.is_pristine:
            self._keep(value, "working")
        elif old := self.find("working"):
            self.git.run("update-ref", "--no-deref", "-d", f"{self.place}working", old)

    def commit(self, value: TreeValue, message: str, author: str | None) -> TreeValue:
        """Commit on the branch. Raises: `conflict` if another process committed; as `TreeValue.commit`."""
        who = commit_identity.choose_identity(self.services.settings, self.services.git_operator)
        if author is not None:
            who = replace(who, author=commit_identity.parse_author(author))
        old = self.find("branch") or "0" * len(value.base_commit)
        if old.strip("0") and old != value.base_commit:
            raise SandboxError(ErrorCode.CONFLICT, "Another process committed to this workspace")
        identity = who.as_environment(datetime.now(UTC))
        return value.commit(message, identity, ref=f"{self.place}branch", expected=old).value

    def release(self) -> None:
        """Delete the refs; the last commit gets a ref of its own."""
        listed = self.git.run("for-each-ref", "--format=%(objectname) %(refname)", self.place).decode().splitlines()
        orders = []
        for oid, _, name in (line.partition(" ") for line in listed):
            if name.startswith(f"{self.place}released-"):
                continue
            if name == f"{self.place}branch":
                orders.append(f"update {self.place}released-{oid[:12]} {oid}\n")
            orders.append(f"delete {name} {oid}\n")
        if orders:
            self.git.run("update-ref", "--no-deref", "--stdin", stdin="".join(orders).encode())

    def _keep(self, value: TreeValue, name: str) -> None:
        value.commit(
            "Content of a workspace\n",
            commit_identity.SANDBOX_IDENTITY.as_environment(datetime.now(UTC)),
            ref=self.place + name,
            expected=self.find(name) or "0" * len(value.base_commit),
        )
