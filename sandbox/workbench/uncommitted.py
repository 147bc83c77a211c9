"""What `run DIR` did not verify: the working directory may hold more than the commit that is checked out in it."""

from __future__ import annotations

from sandbox.git.local import path_of
from sandbox.models import Uncommitted
from sandbox.workbench.bases import facts_of_listing
from sandbox.workbench.parts import Parts
from sandbox.workbench.repositories import Registered
from sandbox.workspaces.uncommitted import find_uncommitted


def uncommitted_in(parts: Parts, found: Registered, commit: str) -> Uncommitted | None:
    """None for a remote on the network, a bare repository, and a commit that is not the one checked out there."""
    root = path_of(parts.remote(found.repository.remote_url))
    if root is None or not (root / ".git").exists() or commit != found.head.commit:
        return None
    facts = facts_of_listing(parts, found.repository.id, found.git, found.head)
    return find_uncommitted(root, found.head.entries, facts.ignore)
