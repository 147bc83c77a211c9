"""Work of a worktree that would be lost with it: uncommitted changes, and names that no commit can hold."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.errors import ErrorCode, SandboxError
from sandbox.workspaces.changes import Changes

_NAMED = 10
_LEFT_OUT_HINT = (
    "No commit can hold some of these names. Copy their files elsewhere, or remove a nested `.git`: the files beside "
    "and below it are then ordinary new ones."
)


def require_no_unsaved_work(name: str, changes: Changes, *, save_hint: str, delete_hint: str) -> None:
    """Refuse to delete the worktree `name`. `save_hint`: how changes are saved. `delete_hint`: how all is deleted.

    Raises: `dirty_workspace`, which names the changes and what a commit leaves out.
    """
    if changes.is_clean:
        return
    left_out = describe_left_out(changes)
    raise SandboxError(
        ErrorCode.DIRTY_WORKSPACE,
        f"{name} has {'uncommitted changes' if changes.tree else 'files that no commit can hold'}",
        details="; ".join(filter(None, (", ".join(c.path for c in changes.shown[:_NAMED]), left_out))),
        hint=" ".join((*([_LEFT_OUT_HINT] if left_out else []), *([save_hint] if changes.tree else []), delete_hint)),
    )


def describe_left_out(changes: Changes) -> str:
    """What a commit of these changes leaves out, and a deletion would lose; empty if there is none."""
    if not changes.unsaved:
        return ""
    return f"no commit can hold {_join_names(changes.unsaved, len(changes.unsaved) + changes.unnamed_files)}"


def _join_names(names: Sequence[str], count: int) -> str:
    named = ", ".join(names[:_NAMED])
    return f"{named} and {count - _NAMED} more" if count > _NAMED else named
