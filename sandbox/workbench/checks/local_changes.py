"""What `run DIR` did not verify: the working directory may differ from the commit that is checked out in it."""

from __future__ import annotations

from sandbox.git.local_remotes import path_of
from sandbox.models import Uncommitted
from sandbox.workbench.controller.services import Parts
from sandbox.workbench.repositories.clone import Registered
from sandbox.workspaces.operator_directory import find_uncommitted


def uncommitted_in(services: Parts, found: Registered, commit: str) -> Uncommitted | None:
    """Changes of the working directory; None for a remote on the network, a bare repository, or another commit."""
    root = path_of(services.remote(found.repository.remote_url))
    if root is None or not (root / ".git").exists() or commit != found.head.commit:
        return None
    return find_uncommitted(root, found.head.entries, found.facts.ignore)
