"""What `run DIR` did not verify: the working directory may differ from the commit that is checked out in it."""

from __future__ import annotations

from sandbox.git.local.local_remotes import local_path_of
from sandbox.models import UncommittedChanges
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.clone import UpdatedRepository
from sandbox.workspaces.operator_directory import find_uncommitted


def find_unverified_changes(
    services: Services, registered: UpdatedRepository, commit: str
) -> UncommittedChanges | None:
    """Changes of the working directory; None for a remote on the network, a bare repository, or another commit."""
    root = local_path_of(services.parse_remote(registered.repository.remote_url))
    if root is None or not (root / ".git").exists() or commit != registered.default_head.commit:
        return None
    return find_uncommitted(root, registered.default_head.entries, registered.facts.ignore)
