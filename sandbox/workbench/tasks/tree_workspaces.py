"""Workspaces of kind `tree`: trees of registered repositories, changed without files on disk (docs/adr/0096).

A workspace has refs in the cache clone, below `refs/sandbox/<its id>/snapshots/`: `branch`, its last commit; `working`,
what was written when it was closed last; and one for each snapshot. They are listed as only copies of work, so
`repo remove` asks before they go.

Several processes may have the same workspace. Each remembers the refs of which its content is. Acquiring it again reads
them, and what is saved or committed on other ones than these is refused: what another process kept would be lost. The
parent of `working` is the commit that it was written on: it does not count once `branch` has moved on, as after a
process that was killed between the two.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import refs
from sandbox.git.cache_clones import resolve_commit
from sandbox.git.process import Git
from sandbox.git.trees.tree_value import PRISTINE, TreeValue, open_tree
from sandbox.models import Repository, WorkspaceKind, WorkspaceRecord, WorkspaceRequest
from sandbox.policy.writes import parse_writable_path
from sandbox.workbench.controller import commit_identity
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.clone import fetch_objects
from sandbox.workbench.tasks.only_copies import WorkRef, list_work_refs
from sandbox.workbench.tasks.repository_hints import HINT_FORMAT, parse_repository_hint
from sandbox.workspaces.acquired import AcquiredWorkspace, AcquiredWorkspaces
from sandbox.workspaces.local_workspaces import describe
from sandbox.workspaces.tree_workspace import KeptTree, TreeKeeper, TreeState, TreeWorkspace


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
            refs = self._refs_of(workspace_id, git)
            state = self._share(record, repository, refs)
        return TreeWorkspace(
            workspace_id,
            state,
            request.writable,
            TreeKeeper(refs.snapshot, partial(refs.commit, state), partial(refs.save, state)),
            partial(self._parse_writable, repository.id),
            {"git.remote": repository.remote_url, "git.branch": wanted.branch or repository.default_branch},
            self._acquired.watch(workspace_id),
        )

    def release(self, workspace_id: str) -> None:
        """See `WorkspaceProvider`. Its last commit is kept. Raises: `dirty_workspace` for what is not committed."""
        self._acquired.release(workspace_id, self._give_up)

    def list(self) -> list[WorkspaceRecord]:
        """See `WorkspaceProvider`."""
        return [describe(self.kind, found, lambda _: (None, None)) for found in self._acquired.list()]

    def _parse_writable(self, repo_id: str, path: str) -> str:
        return parse_writable_path(path, self._services.policies.paths, repo_id)

    def _refs_of(self, workspace_id: str, git: Git) -> _Refs:
        locked = partial(self._acquired.locked, workspace_id)
        return _Refs(self._services, git, workspace_id, locked)

    def _share(self, record: AcquiredWorkspace, repository: Repository, refs: _Refs) -> TreeState:
        """The state of this process, unless another one has kept something else since and there is no change here."""
        states, found = self._services.tree_states, refs.read()
        with self._services.once_lock:
            state = states.get(record.id)
            if state is None or (_is_unchanged(state) and found.ids != _list_refs(state)):
                fetch = partial(fetch_objects, self._services, repository, refs.git)
                base = found.branch.oid if found.branch else record.facts["commit"]
                value = open_tree(refs.git, base, default_branch=repository.default_branch, fetch=fetch)
                if found.working and found.working.parent == base:
                    value = value.restore(found.working.tree)
                state = states[record.id] = TreeState(value, KeptTree(value, *found.ids))
            return state

    def _give_up(self, record: AcquiredWorkspace) -> None:
        repository, git = self._services.repositories.open(record.facts["repository"])
        refs = self._refs_of(record.id, git)
        state = self._share(record, repository, refs)
        if not state.value.is_pristine:
            raise SandboxError(
                ErrorCode.DIRTY_WORKSPACE,
                f"The workspace {record.id} has changes that are not committed",
                hint="Commit them, or restore the snapshot 'pristine' to drop them.",
            )
        if refs.is_overtaken(state):
            raise _overtaken_error("released", None)
        refs.release()
        self._services.tree_states.pop(record.id, None)


class _Found(NamedTuple):
    """The refs of a workspace that say what its content is; None for one that there is not."""

    branch: WorkRef | None
    working: WorkRef | None

    @property
    def ids(self) -> tuple[str | None, str | None]:
        """Their commits."""
        return self.branch.oid if self.branch else None, self.working.oid if self.working else None


@dataclass(frozen=True)
class _Refs:
    """The refs of one workspace. `locked`: holds its lock against other threads and processes."""

    services: Services
    git: Git
    workspace_id: str
    locked: Callable[[], AbstractContextManager[None]]

    @property
    def place(self) -> str:
        """Where they are."""
        return f"refs/sandbox/{self.workspace_id}/snapshots/"

    def find(self, name: str) -> str | None:
        """The commit of a ref."""
        return refs.resolve_ref(self.git, self.place + name)

    def read(self) -> _Found:
        """`branch` and `working`."""
        names = f"{self.place}branch", f"{self.place}working"
        found = {ref.name: ref for ref in list_work_refs(self.git, *names)}
        return _Found(found.get(names[0]), found.get(names[1]))

    def snapshot(self, value: TreeValue) -> str:
        """Store the content, with a ref to it."""
        if value.is_pristine:
            return PRISTINE
        if self.find(value.tree) is None:
            self._keep(value, value.tree, None)
        return value.tree

    def save(self, state: TreeState, value: TreeValue) -> None:
        """Keep what was written, or that it was given up. Raises: `conflict` if another process kept something since
        the content was read: what was written is a snapshot then.
        """
        with self.locked():
            kept = _kept_of(state)
            if (value.tree, value.base_commit) == (kept.value.tree, kept.value.base_commit):
                state.kept = replace(kept, value=value)  # the same content: what is acquired next reads the refs
                return
            if self.is_overtaken(state):
                self._forget(state)
                if not value.is_pristine:
                    raise _overtaken_error("saved", self.snapshot(value))
                return
            working = None
            if not value.is_pristine:
                working = self._keep(value, "working", kept.working)
            elif kept.working is not None:
                self._drop_working(kept.working)
            state.kept = KeptTree(value, kept.branch, working)

    def commit(self, state: TreeState, value: TreeValue, message: str, author: str | None) -> TreeValue:
        """Commit on the branch. Raises: `conflict` if another process kept something; as `TreeValue.commit`."""
        who = commit_identity.choose_identity(self.services.settings, self.services.git_operator)
        if author is not None:
            who = replace(who, author=commit_identity.parse_author(author))
        identity = who.as_environment(datetime.now(UTC))
        with self.locked():
            if self.is_overtaken(state):
                raise _overtaken_error("committed", None)
            branch, working = _list_refs(state)
            old = branch or "0" * len(value.base_commit)
            made = value.commit(message, identity, ref=f"{self.place}branch", expected=old).value
            if working is not None:
                with suppress(SandboxError):  # such as without space on the disk: it does not count any more
                    self._drop_working(working)
                    working = None
            state.kept = KeptTree(made, made.base_commit, working)
        return made

    def is_overtaken(self, state: TreeState) -> bool:
        """Whether another process kept something since the content was read."""
        return self.read().ids != _list_refs(state)

    def _forget(self, state: TreeState) -> None:
        """The next one that is acquired in this process has what the other process kept."""
        with self.services.once_lock:
            if self.services.tree_states.get(self.workspace_id) is state:
                del self.services.tree_states[self.workspace_id]

    def _drop_working(self, oid: str) -> None:
        refs.delete_ref(self.git, f"{self.place}working", oid)

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

    def _keep(self, value: TreeValue, name: str, old: str | None) -> str:
        """Set a ref to a commit with the content; returns the commit."""
        made = value.commit(
            "Content of a workspace\n",
            commit_identity.SANDBOX_IDENTITY.as_environment(datetime.now(UTC)),
            ref=self.place + name,
            expected=old or "0" * len(value.base_commit),
        )
        return made.commit


def _kept_of(state: TreeState) -> KeptTree:
    assert state.kept is not None  # noqa: S101 - each state of a record has it
    return state.kept


def _is_unchanged(state: TreeState) -> bool:
    return state.value is _kept_of(state).value


def _list_refs(state: TreeState) -> tuple[str | None, str | None]:
    """The commits of `branch` and `working` of which its content is."""
    kept = _kept_of(state)
    return kept.branch, kept.working


def _overtaken_error(what: str, snapshot: str | None) -> SandboxError:
    """`snapshot`: of what was written here; None: it is in the workspace."""
    kept = f"What was written here is the snapshot {snapshot}" if snapshot else "What was written here was not kept yet"
    how = f"restore the snapshot {snapshot}" if snapshot else "restore the snapshot that the error of `close` names"
    return SandboxError(
        ErrorCode.CONFLICT,
        f"Another process changed this workspace, so that this could not be {what}",
        details=f"{kept}.",
        hint=f"{'Acquire' if snapshot else 'Close and acquire'} the workspace again; to go on with yours, {how}.",
        reason="overtaken",
        data={"snapshot": snapshot} if snapshot else {},
    )
