"""Choose the layout of a new worktree, or detect that of an existing one."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.overlay import why_not_overlay
from sandbox.workspaces.full_checkout import Plain
from sandbox.workspaces.layout import Layout, Site
from sandbox.workspaces.overlay import Overlay


def choose(wanted: Literal["auto", "overlay", "plain"], folder: Path) -> Layout:
    """The layout of a new worktree below `folder`. Raises: `policy_violation` if a required overlay is impossible."""
    if wanted == "plain":
        return Plain()
    reason = why_not_overlay(folder)
    if not reason:
        return Overlay()
    if wanted == "overlay":
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            "workspaces.worktree is 'overlay', but this host cannot mount overlays",
            details=reason,
            hint="Run the controller as root with its home on ext4 or xfs, or set workspaces.worktree to 'auto'.",
        )
    return Plain()


def layout_of(site: Site) -> Layout:
    """The layout of an existing worktree, independent of the current setting."""
    return Overlay() if site.layers.is_dir() else Plain()
