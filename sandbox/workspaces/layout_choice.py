"""Choose the layout of a new worktree, or detect that of an existing one."""

from __future__ import annotations

import os
from dataclasses import replace
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
    reason = _find_obstacle_once(folder, ids)
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


_working: set[tuple[object, ...]] = set()
"""File systems where overlays worked, with the user of this process and the owners that were replaced."""


def _find_obstacle_once(folder: Path, ids: IdMapping | None) -> str:
    """As `find_overlay_obstacle`. What worked once in a process works: a test takes as long as three git commands."""
    replaced = replace(ids, shown=(0, 0)) if ids else None  # each worktree has an owner of its own
    where = (folder.stat().st_dev, os.statvfs(folder).f_fsid, os.geteuid(), replaced)
    if where in _working:
        return ""
    reason = find_overlay_obstacle(folder, ids)
    if not reason:
        _working.add(where)
    return reason


def layout_of(site: WorktreePaths) -> Layout:
    """The layout of an existing worktree, independent of the current setting."""
    return OverlayLayout() if site.layers.is_dir() else PlainLayout()
