"""What killed controllers left of workspaces: scratch directories without an owner, and clones that were cut off."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from sandbox.files.checkout import remove_tree
from sandbox.workbench.reconciling.reconciler import Finding, Reconciler, list_folder
from sandbox.workspaces.ephemeral_workspaces import EphemeralWorkspaces

_HALF = re.compile(r"^\.(clone-[0-9a-f]+)\.(removed-)?[0-9a-f]+\Z")


def find_workspace_leftovers(reconciler: Reconciler) -> Iterator[Finding]:
    """Scratch directories, deleted as `release` does, and half clones, which no caller was given."""
    home = reconciler.services.home
    scratch = EphemeralWorkspaces(reconciler.services)
    for workspace_id in scratch.list_abandoned():
        yield Finding("scratch directory", workspace_id, partial(_collect, scratch, workspace_id))
    for path in list_folder(home.workspaces("clone")):
        if (match := _HALF.match(path.name)) and path.is_dir():
            yield Finding("clone workspace", path.name, partial(remove_tree, path), locks=(match[1],))


def _collect(scratch: EphemeralWorkspaces, workspace_id: str) -> str | None:
    return "" if scratch.remove_abandoned(workspace_id) else None
