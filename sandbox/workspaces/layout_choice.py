"""Which layout a worktree has, or gets."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.overlay import why_not_overlay
from sandbox.workspaces.full_checkout import Plain
from sandbox.workspaces.layout import Layout, Site
from sandbox.workspaces.overlay import Overlay


def choose(wanted: Literal["auto", "overlay", "plain"], folder: Path) -> Layout:
    """The layout of a new worktree below `folder`. Raises: `policy_violation` for an overlay this host cannot do."""
    if wanted == "plain":
        return Plain()
    reason = why_not_overlay(folder)
    if not reason:
        return Overlay()
    if wanted == "overlay":
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            "workspaces.worktree asks for overlays, and this host cannot do them",
            details=reason,
            hint="Run the controller as root with its home on a file system like ext4 or xfs, or set 'auto'.",
        )
    return Plain()


def layout_of(site: Site) -> Layout:
    """The layout a worktree was made with, whatever new ones get."""
    return Overlay() if site.layers.is_dir() else Plain()
