"""Choose the layout of a new worktree, or detect that of an existing one."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.idmap import IdMapping
from sandbox.files.overlay_mounts import find_overlay_obstacle
from sandbox.workspaces.full_checkout import PlainLayout
from sandbox.workspaces.layout import Layout, WorktreePaths
from sandbox.workspaces.overlay_layout import OverlayLayout


def choose_layout(setting: Literal["auto", "overlay", "plain"], folder: Path, ids: IdMapping | None) -> Layout:
    """The layout of a new worktree below `folder`. `ids`: see `WorktreePaths.id_mapping`.

    Raises: `policy_violation` if a required overlay is impossible.
    """
    if setting == "plain":
        return PlainLayout()
    reason = find_overlay_obstacle(folder, ids)
    if not reason:
        return OverlayLayout()
    if setting == "overlay":
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            "workspaces.worktree is 'overlay', but this host cannot mount overlays",
            details=reason,
            hint="Run the controller as root, on Linux 5.19 or newer, with its home on ext4, xfs or btrfs; or set "
            "workspaces.worktree to 'auto'.",
        )
    return PlainLayout()


def layout_of(site: WorktreePaths) -> Layout:
    """The layout of an existing worktree, independent of the current setting."""
    return OverlayLayout() if site.layers.is_dir() else PlainLayout()
