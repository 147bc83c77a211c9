"""Workspaces of kind `local`: directories of the caller, which are never deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import WorkspaceKind, WorkspaceRecord, WorkspaceRequest
from sandbox.workspaces.acquired import AcquiredWorkspace, AcquiredWorkspaces
from sandbox.workspaces.folder_workspace import FolderWorkspace, OwnFolder
from sandbox.workspaces.workspace import ProviderServices


class LocalWorkspaces:
    """See `WorkspaceProvider`. Two hints that lead to one directory are one workspace."""

    kind = WorkspaceKind.LOCAL.value
    hint_format = "a directory; none: the current directory"

    def __init__(self, services: ProviderServices) -> None:
        self._services = services
        self._acquired = AcquiredWorkspaces(services.home, self.kind)

    def acquire(self, request: WorkspaceRequest) -> FolderWorkspace:
        """See `WorkspaceProvider`. Raises: `invalid_input` when there is no such directory."""
        root = find_directory(request.hint)
        same = request.model_copy(update={"hint": str(root)})
        workspace_id = self._acquired.id_of(same)
        with self._services.home.locked("workspaces-local"):  # of all: directories may be inside each other
            if self._acquired.find(workspace_id) is None:
                self._require_own(root, request.tenant)
                self._acquired.save(same)
        is_held = self._acquired.watch(workspace_id)
        return FolderWorkspace(workspace_id, WorkspaceKind.LOCAL, OwnFolder(root), request.writable, is_held=is_held)

    def release(self, workspace_id: str) -> None:
        """See `WorkspaceProvider`. The directory stays as it is."""
        self._acquired.release(workspace_id, lambda _: None)

    def list(self) -> list[WorkspaceRecord]:
        """See `WorkspaceProvider`."""
        return [describe(self.kind, found, _find_problem) for found in self._acquired.list()]

    def _require_own(self, root: Path, tenant: str) -> None:
        """Raises: `policy_violation` for a directory that another tenant acquired, or one inside or above it."""
        for found in self._acquired.list():
            if isinstance(found, SandboxError) or found.tenant == tenant:
                continue
            other = Path(found.hint or ".")
            if root == other or root in other.parents or other in root.parents:
                raise SandboxError(
                    ErrorCode.POLICY_VIOLATION,
                    "The directory belongs to another tenant's workspace",
                    details=str(root),
                    hint="Two tenants never share a workspace. Use another directory, or release that one.",
                )


def find_directory(hint: str | None) -> Path:
    """The directory that a hint means, without links. Raises: `invalid_input`."""
    try:
        root = Path(hint or ".").expanduser().resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise _no_directory_error(hint, str(error)) from error
    if not root.is_dir():
        raise _no_directory_error(hint, "it is a file")
    return root


def describe(kind: str, found: AcquiredWorkspace | SandboxError, find_problem: Any) -> WorkspaceRecord:
    """A line of a listing. `find_problem`: root and problem of a record."""
    if isinstance(found, SandboxError):
        damaged = (found.data or {}).get("id", "")
        return WorkspaceRecord(id=damaged, kind=kind, hint=None, tenant="", problem=found.brief)
    root, problem = find_problem(found)
    return WorkspaceRecord(id=found.id, kind=kind, hint=found.hint, tenant=found.tenant, root=root, problem=problem)


def _find_problem(record: AcquiredWorkspace) -> tuple[Path, str | None]:
    root = Path(record.hint or ".")
    return root, None if root.is_dir() else "the directory is gone"


def _no_directory_error(hint: str | None, why: str) -> SandboxError:
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        "There is no such directory on this host",
        details=f"{ascii(hint)[:200]}: {why[:200]}",
        hint="A local workspace is named by its directory.",
    )
