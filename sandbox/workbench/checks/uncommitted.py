"""What `run DIR` does not verify: the uncommitted changes of the working directory."""

from __future__ import annotations

from sandbox.git.local.local_remotes import local_path_of
from sandbox.models import UncommittedChanges
from sandbox.workbench.controller.remote_access import RemoteConnector
from sandbox.workbench.repositories.clone import UpdatedRepository
from sandbox.workbench.repositories.commit_facts import list_commit
from sandbox.workspaces.base_facts import BaseFacts
from sandbox.workspaces.working_directory import compare_working_directory


def find_uncommitted_changes(
    remotes: RemoteConnector, registered: UpdatedRepository, commit: str, facts: BaseFacts
) -> UncommittedChanges | None:
    """Uncommitted changes of the working directory; None for a remote on the network, a bare repository, or another
    commit than the one that is checked out.

    `facts`: of the commit.
    """
    root = local_path_of(remotes.parse(registered.repository.remote_url))
    if root is None or not (root / ".git").exists() or commit != registered.remote_head:
        return None
    head = registered.default_head
    listing = head if commit == head.commit else list_commit(registered.git, commit)
    return compare_working_directory(root, listing.entries, facts.ignore)
