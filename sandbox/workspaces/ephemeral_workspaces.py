"""Workspaces of kind `ephemeral`: scratch directories, deleted by `release`, or when no controller that acquired them
runs any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.files.checkout import remove_tree
from sandbox.models import WorkspaceKind, WorkspaceRecord, WorkspaceRequest
from sandbox.private_folders import make_private
from sandbox.store.liveness import LiveController, list_live_nonces
from sandbox.workspaces.acquired import AcquiredWorkspace, AcquiredWorkspaces
from sandbox.workspaces.folder_workspace import FolderWorkspace, OwnFolder
from sandbox.workspaces.local_workspaces import describe
from sandbox.workspaces.workspace import ProviderServices

_OWNERS = "owners"


@dataclass(frozen=True)
class _IsHeld:
    """Whether a workspace was not released. It refers to its controller, which so lives as long as the workspace: a
    program may keep no more than that, and an owner that has ended would let others delete the files.
    """

    presence: LiveController
    is_acquired: Callable[[], bool]

    def __call__(self) -> bool:
        return self.is_acquired()


class EphemeralWorkspaces:
    """See `WorkspaceProvider`. Its owners are the live controllers that acquired it: it is gone with the last one."""

    kind = WorkspaceKind.EPHEMERAL.value
    hint_format = "any name; none: the scratch directory of the tenant"

    def __init__(self, services: ProviderServices) -> None:
        self._services = services
        self._acquired = AcquiredWorkspaces(services.home, self.kind)

    def acquire(self, request: WorkspaceRequest) -> FolderWorkspace:
        """See `WorkspaceProvider`."""
        workspace_id = self._acquired.id_of(request)
        root, mine = self._acquired.folder_of(workspace_id), self._services.presence.nonce
        with self._acquired.locked(workspace_id):
            owners = self._list_owners(self._acquired.find(workspace_id))
            if not owners and root.exists():
                remove_tree(root)  # of a controller that is gone
            make_private(root)
            if mine not in owners:
                self._acquired.save(request, **{_OWNERS: " ".join((*owners, mine))})
        is_held = _IsHeld(self._services.presence, self._acquired.watch(workspace_id))
        return FolderWorkspace(
            workspace_id, WorkspaceKind.EPHEMERAL, OwnFolder(root), request.writable, is_held=is_held
        )

    def release(self, workspace_id: str) -> None:
        """See `WorkspaceProvider`. The directory is deleted, for its other owners too."""
        self._acquired.release(workspace_id, lambda record: self._remove_files(record.id))

    def list(self) -> Sequence[WorkspaceRecord]:
        """See `WorkspaceProvider`. Those without a live owner are deleted, and not listed."""
        for workspace_id in self.list_abandoned():
            self.remove_abandoned(workspace_id)
        return [describe(self.kind, found, self._find_problem) for found in self._acquired.list()]

    def list_abandoned(self) -> Sequence[str]:
        """Ids of those without a live owner."""
        records = [found for found in self._acquired.list() if not isinstance(found, SandboxError)]
        return [found.id for found in records if not self._list_owners(found)]

    def remove_abandoned(self, workspace_id: str) -> bool:
        """Delete one. Returns whether it still had no live owner."""
        with self._acquired.locked(workspace_id):
            record = self._acquired.find(workspace_id)
            if record is None or self._list_owners(record):
                return False
            self._remove_files(workspace_id)
            self._acquired.forget(workspace_id)
        return True

    def _list_owners(self, record: AcquiredWorkspace | None) -> Sequence[str]:
        """The controllers among its owners that are alive."""
        named = record.facts.get(_OWNERS, "").split() if record else []
        live = list_live_nonces(self._services.home.liveness)
        return [nonce for nonce in named if nonce in live]

    def _remove_files(self, workspace_id: str) -> None:
        root = self._acquired.folder_of(workspace_id)
        if root.exists():
            remove_tree(root)

    def _find_problem(self, record: AcquiredWorkspace) -> tuple[Path, str | None]:
        root = self._acquired.folder_of(record.id)
        return root, None if root.is_dir() else "the directory is gone"
