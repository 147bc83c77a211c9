"""Providers of workspaces by kind: ours, and those of other packages.

Another package names its factory as an entry point of the group `space_sandbox.workspaces`; the entry point's name is
the kind. It cannot take the place of one of ours. A provider is imported when its kind is asked for.
"""

from __future__ import annotations

import importlib
from importlib.metadata import EntryPoint, entry_points

from sandbox.errors import ErrorCode, SandboxError
from sandbox.workspaces.workspace import ProviderFactory

GROUP = "space_sandbox.workspaces"
OURS = {
    "local": "sandbox.workspaces.local_workspaces:LocalWorkspaces",
    "worktree": "sandbox.workbench.tasks.worktree_workspaces:WorktreeWorkspaces",
    "clone": "sandbox.workbench.tasks.clone_workspaces:CloneWorkspaces",
    "tree": "sandbox.workbench.tasks.tree_workspaces:TreeWorkspaces",
    "ephemeral": "sandbox.workspaces.ephemeral_workspaces:EphemeralWorkspaces",
}
"""Module and factory of each kind of ours, `module:name`."""


def list_kinds() -> list[str]:
    """The known kinds: ours in their fixed order, then those of other packages by name."""
    return [*OURS, *sorted(set(entry_points(group=GROUP).names) - OURS.keys())]


def find_factory(kind: str, of_id: str | None = None) -> ProviderFactory:
    """The factory of a kind's provider. Raises: `invalid_input` for an unknown kind, and names the known ones; with
    `of_id`, an id of a workspace, `not_found`.
    """
    if of_id is not None and kind not in list_kinds():
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"There is no workspace '{of_id[:100]}'",
            hint="`Workbench.list_workspaces` lists those that were acquired.",
        )
    point = EntryPoint(kind, OURS[kind], GROUP) if kind in OURS else _find_foreign(kind)
    module, _, name = point.value.partition(":")
    factory: ProviderFactory = getattr(importlib.import_module(module), name)
    return factory


def _find_foreign(kind: str) -> EntryPoint:
    for point in entry_points(group=GROUP, name=kind):
        return point
    raise SandboxError(
        ErrorCode.INVALID_INPUT,
        f"There is no kind of workspace named '{kind[:40]}'",
        hint=f"Known kinds: {', '.join(list_kinds())}.",
    )
