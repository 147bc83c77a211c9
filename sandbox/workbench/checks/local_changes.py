"""What `run DIR` did not verify: the working directory may hold more than the commit that is checked out in it."""

from __future__ import annotations

from sandbox.git.local_remotes import path_of
from sandbox.models import Uncommitted
from sandbox.workbench.controller.services import Parts
from sandbox.workbench.repositories.clone import Registered
from sandbox.workbench.repositories.commit_facts import facts_of_listing
from sandbox.workspaces.operator_directory import find_uncommitted


def uncommitted_in(parts: Parts, found: Registered, commit: str) -> Uncommitted | None:
    """None for a remote on the network, a bare repository, and a commit that is not the one checked out there."""
    root = path_of(parts.remote(found.repository.remote_url))
    if root is None or not (root / ".git").exists() or commit != found.head.commit:
        return None
    facts = facts_of_listing(parts, found.repository.id, found.git, found.head)
    return find_uncommitted(root, found.head.entries, facts.ignore)
